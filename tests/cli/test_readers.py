"""`penstock readers` and `penstock release`, over a reader whose query is gone."""

import penstock as library
from penstock.log.reader_claims import ReaderClaims
from tests.cli.conftest import Command


def test_a_readers_claims_are_shown_and_given_back(penstock: Command, command: Command, log_url: str) -> None:
    with library.open(log_url) as log:
        log.append_many("orders", [{"payload": {}, "type": "t"}] * 4)
        log.create_group("orders", "lake")
        assert ReaderClaims(log.store, "orders", "lake").next("gone", after=0, limit=3, upto=None) == 1
    (shown,) = penstock("readers", "orders", "lake").json["readers"]
    assert (shown["reader"], shown["events"]) == ("gone", 3) and shown["claimed_at"] < shown["expires_at"]
    assert "gone" in command("readers", "orders", "lake", "--url", log_url).out
    release = ("release", "orders", "lake", "--reader")
    refused = penstock(*release, "gone")
    assert (refused.code, refused.error) == (2, "confirmation_needed")
    assert penstock(*release, "typo", "--yes").error == "unknown_reader"
    assert penstock(*release, "gone", "--dry-run").json["count"] == 3
    assert penstock(*release, "reader:gone", "--yes", "--by", "ada").json["count"] == 3
    assert penstock(*release, "gone", "--yes").json["count"] == 0
    assert penstock("readers", "orders", "lake").json["readers"] == []
    assert "No reader" in command("readers", "orders", "lake", "--url", log_url).out
    with library.open(log_url) as log:
        lease = log.claim("orders", "lake", claimed_by="w")
        assert lease is not None and len(lease) == 3


def test_somebody_at_the_keyboard_is_asked(command: Command, log_url: str) -> None:
    with library.open(log_url) as log:
        log.append("orders", {}, type="t")
        log.create_group("orders", "lake")
        ReaderClaims(log.store, "orders", "lake").next("gone", after=0, limit=3, upto=None)
    arguments = ("release", "orders", "lake", "--reader", "gone", "--url", log_url)
    asked = command(*arguments, stdin="n\n", terminal=True)
    assert asked.code == 1 and "Give 1 deliveries" in asked.err
    done = command(*arguments, stdin="y\n", terminal=True)
    assert done.code == 0 and "1 deliveries came back" in done.out
