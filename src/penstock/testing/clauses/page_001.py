"""Page 001: the lifecycle of a message for every consumer group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.app import App
from penstock.core.lease import Settlement
from penstock.core.retry import Retry
from penstock.log.open import open_log
from penstock.testing.clauses.bench import Bench
from penstock.testing.clauses.registry import clause


@clause("001-1", "every group has a state machine of its own for a message")
def state_per_group(b: Bench) -> None:
    event = b.append()
    for name in ("a", "b", "c"):
        b.group(name)
    b.claim(group="a").settle(dead={event: "hopeless"})
    b.claim(group="b").settle()
    assert [b.of(event, name).state for name in ("a", "b", "c")] == ["DEAD", "PUBLISHED", "PENDING"]


@clause("001-2", "a claim moves ready to processing")
def claim_moves_on(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim()
    assert b.of(event).state == "CLAIMED"


@clause("001-3", "success is done")
def success_is_done(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    assert b.of(event).state == "PUBLISHED"


@clause("001-4", "a failure below the maximum goes back after its backoff")
def failure_backs_off(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=2, base_seconds=10, jitter=0))
    b.fail(1)
    assert b.of(event).state == "PENDING" and b.try_claim() is None
    b.clock.advance(10)
    assert b.try_claim() is not None


@clause("001-5", "a failure at the maximum is dead")
def last_failure_is_dead(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=2, base_seconds=0, jitter=0))
    b.fail(2)
    assert b.of(event).state == "DEAD"


@clause("001-6", "an expired lease is taken back by the reaper")
def reaper_takes_back(b: Bench) -> None:
    event = b.append()
    b.group()
    lease = b.claim()
    b.clock.advance(61)
    assert b.of(event).state == "CLAIMED"
    assert lease.expires_at <= b.clock.now() and b.log.reap() >= 1
    assert b.of(event).state == "PENDING"


@clause("001-7", "each transition is recorded with attempts, times and the last error, per group")
def transitions_are_recorded(b: Bench) -> None:
    event = b.append()
    b.group("a")
    b.group("b")
    b.fail(1, group="a", error="boom")
    b.clock.advance(1)
    b.claim(by="relay-2", group="a").settle()
    lines = b.of(event, "a").history
    failed = [one for one in lines if one.outcome == "failed"]
    published = [one for one in lines if one.outcome == "published"]
    assert [(one.attempt, one.error) for one in failed] == [(1, "boom")]
    assert [(one.attempt, one.claimed_by) for one in published] == [(2, "relay-2")]
    assert all(one.ended_at is not None for one in (*failed, *published))
    assert b.of(event, "b").history == ()


@clause("001-8", "a dead letter of one group does not concern another")
def groups_are_isolated(b: Bench) -> None:
    events = [b.append() for _ in range(3)]
    b.group("a")
    b.group("b")
    b.claim(group="a").settle(dead={events[1]: "hopeless"})
    assert b.claim(group="b").settle().published == 3


@clause("001-9", "a handler subscribes to a stream for a group")
def handlers_subscribe(b: Bench) -> None:
    app, seen = App(name="shop"), []

    @app.subscribe(b.stream, group="fraud-screening")
    def screen(event: Any) -> None:
        seen.append(event.event_id)

    with b.running(app) as harness:
        event = harness.append(b.stream, {"n": 1}).event_id
        harness.drain()
    assert seen == [event]


@clause("001-10", "a subscription says how often to retry")
def subscription_has_retries(b: Bench) -> None:
    app = App(name="shop")

    @app.subscribe(b.stream, group="fraud-screening", retry=Retry(max_attempts=5, base_seconds=0, jitter=0))
    def screen(event: Any) -> None:
        raise ValueError("boom")

    with b.running(app) as harness:
        harness.append(b.stream, {"n": 1})
        done = harness.drain()
        assert (done.failed, done.dead) == (4, 1)
        assert harness.dead("fraud-screening")[0].attempts == 5


@clause("001-11", "exponential backoff: 2 s, 4 s, 8 s, 16 s")
def backoff_is_exponential(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=5, base_seconds=2, factor=2, jitter=0))
    for seconds in (2, 4, 8, 16):
        b.fail(1)
        due = b.of(event).available_at
        assert due == b.clock.now() + timedelta(seconds=seconds)
        b.clock.advance(seconds)


@clause("001-12", "the due time is stored")
def due_time_is_stored(b: Bench) -> None:
    b.append()
    b.group(retry=Retry(base_seconds=30, jitter=0))
    b.fail(1)
    with open_log(b.url, clock=b.clock) as another:
        assert another.claim(b.stream, "g", claimed_by="another") is None
        b.clock.advance(30)
        assert another.claim(b.stream, "g", claimed_by="another") is not None


@clause("001-13", "no process waits with a timer")
def no_timer(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(base_seconds=3600, jitter=0))
    b.fail(1)
    (found,) = b.sql("select state, claimed_by from penstock.delivery where stream = %s", b.stream)
    assert found == ("PENDING", None)
    b.clock.advance(3600)
    assert b.claim().events[0].event_id == event


@clause("001-14", "a claim is a lease, not a database lock")
def lease_is_no_lock(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim()
    assert b.of(event).state == "CLAIMED"
    b.append()
    assert b.try_claim(by="relay-2") is not None


@clause("001-15", "a worker that finishes resolves the message")
def finishing_resolves(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    b.clock.advance(3600)
    b.log.reap()
    assert b.of(event).state == "PUBLISHED"


@clause("001-16", "the message of a vanished worker becomes claimable again")
def vanished_worker(b: Bench) -> None:
    event = b.append()
    b.group()
    b.expire(b.claim(by="vanished"))
    assert b.claim(by="relay-2").events[0].event_id == event


@clause("001-17", "no session state and no heartbeat is needed")
def no_session_state(b: Bench) -> None:
    event = b.append()
    b.group()
    lease = b.claim()
    b.clock.advance(59)
    with open_log(b.url, clock=b.clock) as another:
        another.settle(lease.id, lease.token, Settlement(upto=lease.row.high))
    assert b.of(event).state == "PUBLISHED"


@clause("001-18", "a dead letter has its payload, attempts and error")
def dead_letter_is_complete(b: Bench) -> None:
    event = b.append({"order": 7})
    b.group(retry=Retry(max_attempts=2, base_seconds=0, jitter=0))
    b.fail(2, error="no such customer")
    letter = b.of(event)
    assert (letter.json(), letter.attempts, letter.last_error) == ({"order": 7}, 2, "no such customer")


@clause("001-19", "dead letters are joined to the log")
def dead_letters_join_the_log(b: Bench) -> None:
    b.append(b"raw bytes")
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    (found,) = b.sql(
        'select e.payload, d.attempts from penstock.deliveries d join penstock.events e on e."offset" = d."offset" '
        "where d.stream = %s and d.state = 'DEAD'",
        b.stream,
    )
    assert (bytes(found[0]), found[1]) == (b"raw bytes", 1)


@clause("001-20", "the dead-letter query of the page runs in its own names")
def dead_letter_query_runs(b: Bench) -> None:
    first, second = b.append({"n": 1}), b.append({"n": 2})
    b.group("fraud-screening", retry=Retry(max_attempts=1))
    b.claim(group="fraud-screening", limit=1).settle(dead={first: "one"})
    b.clock.advance(1)
    b.claim(group="fraud-screening", limit=1).settle(dead={second: "two"})
    found = b.sql(
        "select e.payload, d.attempts, d.last_error, d.updated_at from penstock.vulkan_deliveries d "
        'join penstock.events e on e."offset" = d.event_offset '
        "where d.consumer_group = 'fraud-screening' and d.status = 'dead' and e.stream = %s order by d.updated_at desc",
        b.stream,
    )
    assert [(row[1], row[2]) for row in found] == [(1, "two"), (1, "one")]


@clause("001-21", "dead letters need no policy, and none expires")
def dead_letters_stay(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    b.clock.advance(10 * 365 * 86_400)
    b.log.reap()
    assert b.of(event).state == "DEAD"


@clause("001-22", "redrive moves everything dead of a group")
def redrive_all(b: Bench) -> None:
    for _ in range(3):
        b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    assert b.log.redrive(b.stream, "g", all=True, by="check").count == 3
    assert len(b.claim()) == 3


@clause("001-23", "redrive takes a filter")
def redrive_with_filter(b: Bench) -> None:
    first, second = b.append(), b.append(type="order.paid")
    b.group(retry=Retry(max_attempts=1))
    b.claim().settle(dead={first: "timeout", second: "no such customer"})
    assert b.log.redrive(b.stream, "g", error="customer", by="check").count == 1
    assert (b.of(first).state, b.of(second).state) == ("DEAD", "PENDING")


@clause("001-24", "a poison message neither stalls the others nor is lost")
def poison_does_not_stall(b: Bench) -> None:
    poison, *others = [b.append() for _ in range(5)]
    b.group(retry=Retry(max_attempts=3, base_seconds=5, jitter=0))
    b.claim().settle(failed={poison: "boom"})
    assert {b.of(one).state for one in others} == {"PUBLISHED"}
    for _ in range(2):
        b.clock.advance(60)
        b.fail(1)
    assert b.of(poison).state == "DEAD"


@clause("001-25", "lifecycle, replay and fan-out live on one stream")
def replay_and_fan_out(b: Bench) -> None:
    events = [b.append() for _ in range(2)]
    b.group("a")
    b.group("b")
    b.claim(group="a").settle()
    b.log.replay(b.stream, "a", event_ids=[events[0]], by="check")
    assert [one.event_id for one in b.claim(group="a").events] == [events[0]]
    assert [one.event_id for one in b.claim(group="b").events] == events
