"""`penstock redrive --canary …`, `purge`, `operation`, `fingerprint`, `export` and `mend`."""

import json
from pathlib import Path

import pytest

import penstock as library
from tests.cli.conftest import Command

RETRY = library.Retry(max_attempts=1)


def bury(url: str, count: int = 6) -> list[str]:
    """Dead letters of the group `fraud`."""
    with library.open(url) as log:
        log.create_group("orders", "fraud", retry=RETRY)
        ids = [str(log.append("orders", {"n": n}, type="t", ordering_key="k").event_id) for n in range(count)]
        lease = log.claim("orders", "fraud", claimed_by="w")
        assert lease is not None
        lease.settle(dead={one.event_id: "KeyError: boom" for one in lease.events})
        return ids


@pytest.mark.shows("O04")
def test_many_are_moved_by_a_stored_operation(penstock: Command, command: Command, log_url: str) -> None:
    bury(log_url)
    many = ("redrive", "orders", "fraud", "--error", "KeyError", "--rate", "1000", "--stop-on-return", "2")
    refused = penstock(*many)
    assert (refused.code, refused.error) == (2, "confirmation_needed")
    plan = penstock(*many, "--dry-run").json
    assert (plan["count"], plan["dry_run"], plan["halted_keys_count"]) == (6, True, 0)
    assert "6 deliveries dead at or before" in command(*many, "--dry-run", "--url", log_url).out
    done = penstock(*many, "--yes", "--reason", "fixed", "--by", "ann")
    assert done.code == 0 and (done.json["state"], done.json["moved"], done.json["by"]) == ("done", 6, "ann")
    listed = penstock("operation", "list").json["operations"]
    assert [(one["id"], one["kind"], one["reason"]) for one in listed] == [(1, "redrive", "fixed")]
    assert "done: 6/6 · 0 back" in command("operation", "show", "1", "--url", log_url).out
    assert "redrive" in command("operation", "list", "--url", log_url).out
    assert penstock("operation", "show", "9").error == "unknown_operation"


@pytest.mark.shows("O04")
def test_an_operation_that_stopped_exits_with_one(penstock: Command, log_url: str) -> None:
    bury(log_url)
    many = ("redrive", "orders", "fraud", "--all", "--canary", "2", "--stop-on-return", "1", "--yes", "--detach")
    number = str(penstock(*many).json["id"])
    assert penstock("operation", "pause", number).json["state"] == "paused"
    assert penstock("operation", "resume", number).json["state"] == "running"
    with library.open(log_url) as log:
        log.run_operations()
        lease = log.claim("orders", "fraud", claimed_by="w")
        assert lease is not None and len(lease) == 2
        lease.settle(dead={one.event_id: "KeyError: boom" for one in lease.events})
        with log.store.transaction() as tx:  # as if a second had passed
            tx.one("operation.take", id=int(number), me="nobody", now=tx.now(), latest=tx.now(), expires_at=tx.now())
    stopped = penstock("operation", "run", number)
    assert (stopped.code, stopped.json["state"]) == (1, "stopped")
    assert stopped.json["stop_reason"] == "2 of 2 came back with the error they had."
    assert penstock("operation", "abort", number).error == "operation_ended"


@pytest.mark.shows("O14")
def test_kinds_are_listed_and_noted_and_purged(
    penstock: Command, command: Command, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    bury(log_url)
    (kind,) = penstock("fingerprint", "list", "orders", "fraud").json["fingerprints"]
    assert (kind["count"], kind["message"], kind["capped"]) == (6, "KeyError: boom", False)
    note = ("fingerprint", "note", "orders", "fraud", kind["fingerprint"])
    assert penstock(*note, "--note", "fix in 4.2", "--mute").code == 0
    shown = command("fingerprint", "list", "orders", "fraud", "--url", log_url).out
    assert kind["fingerprint"] in shown and "fix in 4.2" in shown
    purge = ("purge", "orders", "fraud", "--fingerprint", kind["fingerprint"])
    assert penstock(*purge).error == "confirmation_needed"
    assert penstock(*purge, "--dry-run").json["count"] == 6
    assert penstock(*purge, "--yes").json["count"] == 6
    assert penstock("fingerprint", "list", "orders", "fraud").json["fingerprints"] == []
    assert "no dead letters" in command("fingerprint", "list", "orders", "fraud", "--url", log_url).out
    assert penstock("purge", "orders", "fraud", "--all", "--rate", "9", "--yes").json["moved"] == 0


@pytest.mark.shows("O14")
def test_an_export_is_mended_by_hand_and_sent_again(penstock: Command, log_url: str, tmp_path: Path) -> None:
    ids = bury(log_url, 3)
    file = tmp_path / "dead.jsonl"
    assert penstock("export", "orders", "fraud", "--out", str(file)).json["count"] == 3
    assert penstock("export", "orders", "fraud").json["dead_letters"][0]["event_id"] == ids[0]
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["last_error"] for one in lines] == ["KeyError: boom"] * 3
    lines[1]["payload"] = {"n": 100}
    unknown = {"event_id": "0198f2b4-1111-7abc-8def-0123456789ab", "payload": 1}
    file.write_text("\n".join(json.dumps(one) for one in [*lines, unknown]))
    mend = ("mend", "orders", "fraud", "--jsonl", str(file))
    done = penstock(*mend, "--reason", "typo")
    assert done.code == 1
    assert (done.json["mended"], done.json["unchanged"], done.json["repeated"]) == (1, 2, 0)
    assert [(one["line"], one["code"]) for one in done.json["refused"]] == [(4, "unknown_event")]
    assert penstock(*mend).json["repeated"] == 1
    with library.open(log_url) as log:
        lease = log.claim("orders", "fraud", claimed_by="w")
        assert lease is not None and [one.json() for one in lease.events] == [{"n": 100}]
    file.write_text('{"event_id": "nonsense", "payload": 1}\n')
    refused = penstock(*mend)
    assert refused.code == 2 and "Line 1" in refused.json["error"]["message"]
    one = penstock("mend", "orders", "fraud", "--id", ids[0], "--payload", '{"n": 7}').json
    assert one["duplicate"] is False
    assert penstock("mend", "orders", "fraud", "--id", ids[2], "--payload", '{"n": 2}').error == "payload_unchanged"
    assert penstock("mend", "orders", "fraud").code == 2
