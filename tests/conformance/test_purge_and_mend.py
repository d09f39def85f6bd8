"""Dead letters in bulk: purge, fingerprints and their notes, export, and payloads mended by hand."""

from __future__ import annotations

import base64
import uuid
from datetime import UTC, datetime, timedelta

import orjson
import pytest

import penstock
from penstock.errors import IllegalTransition, MissingField, PayloadUnchanged, UnknownEvent
from penstock.testing import VirtualClock
from tests.support.log_steps import claim_and_settle_all
from tests.support.raw_sql import raw

RETRY = penstock.Retry(max_attempts=1)


def bury(log: penstock.Log, errors: list[str], *, group: str = "g", **settings: object) -> list[uuid.UUID]:
    """A group whose events died, each with its error."""
    log.create_group("orders", group, retry=RETRY, **settings)  # type: ignore[arg-type]
    events = [
        log.append("orders", {"n": n}, type=f"t.{n % 2}", ordering_key=f"k{n % 3}", headers={"h": "1"})
        for n in range(len(errors))
    ]
    while (lease := log.claim("orders", group, claimed_by="w")) is not None:
        lease.settle(dead={event.event_id: errors[event.json()["n"]] for event in lease.events})
    return [one.event_id for one in events]


@pytest.mark.shows("O14")
def test_what_is_purged_is_hidden_and_can_be_pruned(log: penstock.Log) -> None:
    ids = bury(log, ["KeyError: 1", "KeyError: 2", "ValueError: x"])
    assert log.purge("orders", "g", error="KeyError", dry_run=True).count == 2
    assert log.purge("orders", "g", error="KeyError", by="ann").count == 2
    assert log.purge("orders", "g", all=True, dry_run=True).count == 1
    assert [one.event_id for one in log.deliveries("orders", "g", state="DEAD")] == ids[2:]
    assert [one.reason for one in log.deliveries("orders", "g", state="DEAD", purged=True)][:2] == ["purged"] * 2
    stats = log.stats("orders", "g").groups[0]
    assert (stats.dead, stats.purged, stats.published, stats.pending) == (1, 2, 0, 0)
    assert log.redrive("orders", "g", error="KeyError").count == 0
    assert log.purge("orders", "g", event_ids=ids[:1]).count == 0, "once is enough"
    assert log.redrive("orders", "g", event_ids=ids[:1]).count == 1, "by its id it comes back"
    history = log.delivery("orders", "g", ids[1]).history
    assert [(one.outcome, one.by) for one in history][-1] == ("purged", "ann")
    with raw(log.store.url) as sql:
        assert sql("select state from penstock.history where outcome = 'purged'")[0][0] == "DEAD"
    claim_and_settle_all(log, "orders", "g")
    assert log.prune("orders", upto=3).count == 2
    assert [one.event_id for one in log.read("orders")] == ids[2:]


@pytest.mark.shows("O14")
def test_a_purge_lets_a_halted_key_go_on(log: penstock.Log) -> None:
    log.create_group("orders", "g", retry=RETRY, ordering="key", on_dead="halt", lanes=1)
    for n in range(3):
        log.append("orders", {"n": n}, type="t", ordering_key="k")
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    lease.settle(dead={lease.events[0].event_id: "no"})
    assert log.claim("orders", "g", claimed_by="w") is None
    assert log.drained("orders", "g")
    log.purge("orders", "g", all=True)
    assert not log.drained("orders", "g")
    assert claim_and_settle_all(log, "orders", "g") is not False
    assert log.stats("orders", "g").groups[0].published == 2


@pytest.mark.shows("O14")
def test_kinds_of_errors_with_counts_trend_and_notes(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, ["KeyError: 1"] * 5)
    clock.advance(3 * 3600)
    bury(log, ["KeyError: 1"] * 2 + ["ValueError: x"] * 4)
    kinds = log.fingerprints("orders", "g")
    assert [(one.message, one.count, one.capped) for one in kinds] == [
        ("KeyError: 1", 7, False),
        ("ValueError: x", 4, False),
    ]
    first = kinds[0]
    assert sum(first.trend) == 7 and first.trend[-1] == 2 and first.trend[-4] == 5
    assert first.last_at - first.first_at == timedelta(hours=3)
    assert len(first.sample_event_ids) == 3 and first.fingerprint is not None
    log.note_fingerprint("orders", "g", first.fingerprint, note="fix in 4.2", owner="ann", by="bob")
    log.note_fingerprint("orders", "g", first.fingerprint, muted=True)
    noted = log.fingerprints("orders", "g")[0]
    assert (noted.note, noted.owner, noted.muted) == ("fix in 4.2", "ann", True)
    with pytest.raises(MissingField):
        log.note_fingerprint("orders", "g", first.fingerprint)
    assert [one.count for one in log.fingerprints("orders", "g", type="t.1")] == [3, 2]
    assert [one.count for one in log.fingerprints("orders", "g", error="ValueError")] == [4]
    assert log.fingerprints("orders", "g", until=datetime(2001, 1, 1, tzinfo=UTC)) == []
    only = first.fingerprint
    assert len(log.deliveries("orders", "g", state="DEAD", fingerprint=only)) == 7
    assert log.purge("orders", "g", fingerprint=only).count == 7
    assert [one.count for one in log.fingerprints("orders", "g")] == [4]
    ids = [log.append("orders", {}, type="t").event_id]
    log.kill("orders", "g", event_ids=ids)
    assert {one.fingerprint: one.count for one in log.fingerprints("orders", "g")}[None] == 1
    log.note_fingerprint("orders", "g", None, note="killed by hand")
    assert "killed by hand" in [one.note for one in log.fingerprints("orders", "g")]
    assert log.redrive("orders", "g", fingerprint="none").count == 1
    log.delete_group("orders", "g")
    with raw(log.store.url) as sql:
        assert sql("select count(*) from penstock.fingerprint_notes")[0][0] == 0
        assert sql("select count(*) from penstock.audit where action = 'note_fingerprint'")[0][0] == 3


@pytest.mark.shows("O14")
def test_a_mended_payload_goes_to_the_group_that_failed_alone(log: penstock.Log) -> None:
    log.create_group("orders", "lake")
    log.create_group("orders", "picky", types=["other"])
    ids = bury(log, ["KeyError: 1", "KeyError: 2"], ordering="key", on_dead="halt")
    claim_and_settle_all(log, "orders", "lake")
    new = log.mend("orders", "g", ids[0], {"n": 100}, reason="typo", by="ann")
    assert not new.duplicate
    assert log.mend("orders", "g", ids[0], {"n": 100}, by="ann") == penstock.Appended(new.offset, new.event_id, True)
    event = log.event("orders", new.event_id)
    assert (event.json(), event.event_type, event.ordering_key, event.headers) == ({"n": 100}, "t.0", "k0", {"h": "1"})
    assert event.metadata == {"mended_from": {"event_id": str(ids[0]), "group": "g"}}
    assert [one.event_id for one in log.deliveries("orders", "g", state="DEAD")] == ids[1:]
    assert log.delivery("orders", "g", ids[0]).reason == "mended"
    assert log.claim("orders", "lake", claimed_by="w") is None
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None and [one.event_id for one in lease.events] == [new.event_id]
    lease.settle()
    stats = {one.group: (one.pending, one.published, one.dead) for one in log.stats("orders").groups}
    assert stats == {"g": (0, 1, 1), "lake": (0, 2, 0), "picky": (0, 0, 0)}
    with pytest.raises(PayloadUnchanged):
        log.mend("orders", "g", ids[1], {"n": 1})
    with pytest.raises(IllegalTransition, match="mended"):
        log.mend("orders", "g", ids[0], {"n": 5})
    with pytest.raises(UnknownEvent):
        log.mend("orders", "g", uuid.uuid4(), {"n": 5})
    elsewhere = log.mend("orders", "g", ids[1], b"raw", into="repairs")
    assert log.event("repairs", elsewhere.event_id).payload == b"raw"
    assert log.prune("orders", upto=100).count == 3, "prune takes what was mended"


@pytest.mark.shows("O14")
def test_an_export_has_payload_and_error(log: penstock.Log) -> None:
    ids = bury(log, ["KeyError: 1", "ValueError: x"])
    log.append("orders", b"\xff", type="t", content_type="application/octet-stream")
    log.append("orders", b'{"a": 1.00000000000000000001}', type="t", content_type="application/json")
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    lease.settle(dead={one.event_id: "no" for one in lease.events})
    found = list(log.export("orders", "g"))
    assert [one["payload"] for one in found] == [
        {"n": 0},
        {"n": 1},
        {"base64": "/w=="},
        {"base64": "eyJhIjogMS4wMDAwMDAwMDAwMDAwMDAwMDAwMX0="},
    ]
    assert found[0]["event_id"] == str(ids[0]) and found[0]["last_error"] == "KeyError: 1"
    assert [one["offset"] for one in log.export("orders", "g", error="ValueError")] == [2]


def test_an_export_can_be_written_whatever_is_in_it(log: penstock.Log) -> None:
    odd = [b'"\\ud800"', b'{"\\udfff": 1}', b"1e99999999999999999999", b"1" * 30, b"[" * 600 + b"]" * 600, b"null"]
    log.create_group("orders", "g", retry=RETRY)
    for one in odd:
        log.append("orders", one, type="t", content_type="application/json")
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    lease.settle(dead={one.event_id: "no" for one in lease.events})
    found = [orjson.loads(orjson.dumps(one, default=str))["payload"]["base64"] for one in log.export("orders", "g")]
    assert [base64.b64decode(one) for one in found] == odd
