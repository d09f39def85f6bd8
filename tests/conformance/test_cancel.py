"""`log.cancel` without an engine: what waits is DEAD at once, the holder of what is claimed is told."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import penstock
from tests.support.raw_sql import raw


def group(log: penstock.Log, count: int = 4, **options: Any) -> list[uuid.UUID]:
    log.create_group("orders", "g", **options)
    return [log.append("orders", {"n": n}, type="t", ordering_key="ada").event_id for n in range(count)]


def states(log: penstock.Log) -> list[tuple[str, str | None]]:
    return [(str(one.state), one.reason) for one in log.deliveries("orders", "g")]


def requests(log_url: str) -> list[tuple[Any, ...]]:
    with raw(log_url) as sql:
        return sql("select reason, by from penstock.event_cancels")


def claimed(log: penstock.Log, limit: int = 10) -> Any:
    lease = log.claim("orders", "g", limit=limit, claimed_by="w-1")
    assert lease is not None
    return lease


CANCELLED = ("DEAD", "cancelled")


def test_what_waits_is_dead_at_once_and_audited(log: penstock.Log, log_url: str) -> None:
    ids = group(log)
    assert log.cancel("orders", "g", event_ids=ids[:2], dry_run=True).count == 2
    assert states(log)[0][0] == "PENDING"
    assert log.cancel("orders", "g", event_ids=[*ids[:2], ids[0]], reason="no need", by="ada").count == 2
    assert states(log)[:2] == [CANCELLED] * 2
    one = log.delivery("orders", "g", ids[0])
    assert (one.error_code, one.last_error, [line.outcome for line in one.history]) == (
        "cancelled",
        "no need",
        ["claimed", "killed"],
    )
    with raw(log_url) as sql:
        assert sql("select by, action, count from penstock.audit") == [("ada", "cancel", 2)]
    assert len(claimed(log)) == 2


def test_a_holder_is_told_with_its_heartbeat(log: penstock.Log, log_url: str) -> None:
    ids = group(log)
    lease = claimed(log)
    lease.extend()
    assert lease.cancelled == {}
    assert log.cancel("orders", "g", event_ids=[ids[1], ids[3]], reason="why", by="ada").running == 2
    lease.extend()
    assert lease.cancelled == {o: "cancelled by ada: why" for o in (lease.events[1].offset, lease.events[3].offset)}
    assert log.heartbeats({lease.id: lease.token}, 60).cancel == {lease.id: sorted(lease.cancelled)}
    lease.settle(dead={ids[1]: "no"})  # the other one has succeeded meanwhile
    assert [state for state, _ in states(log)] == ["PUBLISHED", "DEAD", "PUBLISHED", "PUBLISHED"]
    log.reap()
    assert requests(log_url) == []


@pytest.mark.parametrize("back", ["release", "fail", "tail"])
@pytest.mark.parametrize("ordering", [None, "key"])
def test_what_comes_back_unfinished_is_given_up(
    log: penstock.Log, log_url: str, back: str, ordering: str | None
) -> None:
    ids = group(log, ordering=ordering)
    lease = claimed(log)
    log.cancel("orders", "g", event_ids=[ids[2]], by="ada")
    if back == "release":
        lease.release()
    elif back == "fail":
        lease.settle(failed={ids[2]: "no"})
    else:
        lease.settle(released=[ids[2], ids[3]])
    assert states(log)[2][0] == "PENDING" and requests(log_url) == [("cancelled", "ada")]
    log.reap()
    assert states(log)[2] == CANCELLED and requests(log_url) == []
    assert log.delivery("orders", "g", ids[2]).history[-1].by == "ada"
    while (lease := log.claim("orders", "g", limit=10, claimed_by="w-1")) is not None:
        lease.settle()
    assert [state for state, _ in states(log)] == ["PUBLISHED", "PUBLISHED", "DEAD", "PUBLISHED"]


@pytest.mark.parametrize("verb", ["redrive", "replay", "rewind"])
def test_an_old_request_does_not_reach_a_new_life(log: penstock.Log, log_url: str, verb: str) -> None:
    (one,) = group(log, 1)
    lease = claimed(log)
    log.cancel("orders", "g", event_ids=[one])
    if verb == "redrive":
        lease.settle(dead={one: "no"})
        log.redrive("orders", "g", event_ids=[one])
    elif verb == "replay":
        lease.settle()
        log.replay("orders", "g", event_ids=[one])
    else:
        log.rewind("orders", "g", to="beginning")
    assert requests(log_url) == []
    again = claimed(log)
    again.extend()
    log.reap()
    assert again.cancelled == {} and states(log)[0][0] == "CLAIMED"


def test_all_or_nothing(log: penstock.Log, log_url: str) -> None:
    ids = group(log)
    lease = claimed(log, 2)
    lease.settle(dead={ids[1]: "no"})
    before = states(log)
    for bad, error in ((ids[0], "illegal_transition"), (ids[1], "illegal_transition"), (uuid.uuid4(), "unknown_event")):
        with pytest.raises(penstock.PenstockError) as raised:
            log.cancel("orders", "g", event_ids=[ids[3], bad])
        assert raised.value.code == error
    for odd in ("text", [7]):
        with pytest.raises(penstock.InvalidInput):
            log.cancel("orders", "g", event_ids=odd)
    with pytest.raises(penstock.UnknownGroup):
        log.cancel("orders", "nobody", event_ids=ids)
    assert states(log) == before and requests(log_url) == []
    assert log.cancel("orders", "g", event_ids=[]).count == 0


def test_groups_do_not_share_requests_and_take_them_along(log: penstock.Log, log_url: str) -> None:
    (one,) = group(log, 1)
    log.create_group("orders", "other")
    mine, theirs = claimed(log), log.claim("orders", "other", limit=1, claimed_by="w-1")
    assert theirs is not None
    log.cancel("orders", "g", event_ids=[one])
    theirs.extend()
    assert theirs.cancelled == {}
    mine.settle()
    theirs.settle()
    log.delete_group("orders", "g")
    assert requests(log_url) == []


def test_a_job_is_cancelled_by_its_event_too(log: penstock.Log) -> None:
    waiting, running = log.submit("a", {}).id, None
    job = log.claim_job("w-1")
    assert job is not None and job.id == waiting
    running, waiting = job.id, log.submit("a", {}).id
    answer = log.cancel(job.stream, "workers", event_ids=[running, waiting])
    assert (answer.count, answer.running) == (2, 1)
    assert log.heartbeat(running, "w-1") == "cancel"
    assert (log.job(waiting).status, log.job(waiting).reason) == ("DEAD", "cancelled")
