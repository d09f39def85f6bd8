"""Page 003: reliability and exactly-once processing."""

from __future__ import annotations

from typing import Any

from penstock.app import App
from penstock.core.retry import Retry
from penstock.errors import EffectFailed
from penstock.testing.clauses.bench import Bench, guarantees, refuses
from penstock.testing.clauses.registry import clause

_BROKEN_SQL = ("insert into no_such_table values (1)", ())


@clause("003-1", "processing recovers by itself after a failure")
def recovers_by_itself(b: Bench) -> None:
    events = [b.append() for _ in range(4)]
    b.group()
    b.expire(b.claim())
    while (lease := b.try_claim(by="another")) is not None:
        lease.settle()
    assert {b.of(one).state for one in events} == {"PUBLISHED"}


@clause("003-2", "state is transactional")
def state_is_transactional(b: Bench) -> None:
    b.append(ordering_key="k")
    b.group(keyed=True)
    lease = b.claim()
    refuses(
        EffectFailed,
        lambda: lease.settle(state={"k": {"n": 1}}, execute=[("insert into no_such_table values (1)", ())]),
    )
    assert b.log.state(b.stream, "g", "k") == {}
    lease.settle(state={"k": {"n": 1}})
    assert b.log.state(b.stream, "g", "k") == {"n": 1}


@clause("003-4", "position and state commit in one transaction")
def position_with_state(b: Bench) -> None:
    event = b.append(ordering_key="k")
    b.group(keyed=True)
    lease = b.claim()
    refuses(
        EffectFailed,
        lambda: lease.settle(state={"k": {"n": 1}}, execute=[("insert into no_such_table values (1)", ())]),
    )
    assert (b.of(event).state, b.log.state(b.stream, "g", "k")) == ("CLAIMED", {})
    lease.settle(state={"k": {"n": 1}})
    assert (b.of(event).state, b.log.state(b.stream, "g", "k")) == ("PUBLISHED", {"n": 1})


@clause("003-5", "state and position never drift apart")
def never_drift(b: Bench) -> None:
    app = _counting(b)
    with b.running(app) as harness:
        for n in range(10):
            harness.append(b.stream, {"n": n, "poison": n % 3 == 0}, ordering_key="k")
        harness.drain()
        done = len(harness.deliveries("count", state="PUBLISHED"))
        assert harness.state("count", "k") == {"seen": done} and done == 6


def _counting(b: Bench) -> App:
    app = App(name="shop")

    @app.subscribe(b.stream, group="count", retry=Retry(max_attempts=2, base_seconds=0, jitter=0))
    def count(event: Any, ctx: Any) -> None:
        ctx.state.put("seen", ctx.state.get("seen", 0) + 1)
        if event.json().get("poison"):
            raise ValueError("poison")

    return app


@clause("003-6", "a message is kept until it is acknowledged")
def kept_until_acknowledged(b: Bench) -> None:
    event = b.append()
    b.group()
    b.expire(b.claim())
    b.claim().release()
    assert b.claim().events[0].event_id == event


@clause("003-7", "the handler runs, then state and position commit, then the message is acknowledged")
def protocol(b: Bench) -> None:
    app, seen = App(name="shop"), []

    @app.subscribe(b.stream, group="count")
    def count(event: Any, ctx: Any) -> None:
        ctx.state.put("n", 1)
        seen.append((b.log.state(b.stream, "count", "k"), str(b.of(event.event_id, "count").state)))

    with b.running(app) as harness:
        event = harness.append(b.stream, {"n": 1}, ordering_key="k").event_id
        harness.drain()
        assert seen == [({}, "CLAIMED")], "nothing is committed while the handler runs"
        assert (harness.state("count", "k"), b.of(event, "count").state) == ({"n": 1}, "PUBLISHED")


@clause("003-8", "handlers write state with ctx.state.put()")
def state_put(b: Bench) -> None:
    with b.running(_counting(b)) as harness:
        harness.append(b.stream, {"n": 1}, ordering_key="k")
        harness.drain()
        assert harness.state("count", "k") == {"seen": 1}


@clause("003-9", "the position is a row that commits with the effects")
def checkpoint_row(b: Bench) -> None:
    b.append()
    b.group()
    b.claim().settle()
    (last,) = b.log.read(b.stream)
    (found,) = b.sql("select cursor from penstock.lane where stream = %s", b.stream)
    assert found[0] >= last.offset


@clause("003-12", "an exception of a handler is caught, and retries are managed")
def exceptions_are_caught(b: Bench) -> None:
    app = App(name="shop")

    @app.subscribe(b.stream, group="g", retry=Retry(max_attempts=3, base_seconds=0, jitter=0))
    def handle(event: Any) -> None:
        if event.attempts < 2:
            raise ValueError("boom")

    with b.running(app) as harness:
        harness.append(b.stream, {"n": 1})
        done = harness.drain()
        assert (done.failed, done.published) == (1, 1)


@clause("003-13", "a retry may be immediate")
def immediate_retry(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(base_seconds=0, jitter=0))
    b.fail(1)
    assert b.claim().events[0].event_id == event


@clause("003-14", "every message has a retry count of its own")
def retry_count_per_message(b: Bench) -> None:
    once, twice = b.append(), b.append()
    b.group()
    b.claim().settle(failed={once: "boom", twice: "boom"})
    b.claim().settle(failed={twice: "boom"})
    assert (b.of(once).failures, b.of(twice).failures) == (1, 2)


@clause("003-15", "after more failures than max_retries a message is a dead letter (max_attempts = max_retries + 1)")
def too_many_retries(b: Bench) -> None:
    event = b.append()
    max_retries = 3
    b.group(retry=Retry(max_attempts=max_retries + 1, base_seconds=0, jitter=0))
    b.fail(max_retries)
    assert b.of(event).state == "PENDING"
    b.fail(1)
    assert b.of(event).state == "DEAD" and b.try_claim() is None
    assert "`max_attempts` = `max_retries` + 1" in guarantees()


@clause("003-16", "a dead letter does not block other messages")
def dead_letters_do_not_block(b: Bench) -> None:
    dead = b.append(ordering_key="k")
    b.append(ordering_key="k")
    b.group(ordering="key", retry=Retry(max_attempts=1))
    b.claim(limit=1).settle(failed={dead: "boom"})
    assert b.claim().settle().published == 1


@clause("003-17", "dead letters can be inspected")
def dead_letters_are_inspected(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    (letter,) = b.log.deliveries(b.stream, "g", state="DEAD")
    assert letter.event_id == event


@clause("003-19", "a dead letter has the original payload")
def dead_letter_payload(b: Bench) -> None:
    event = b.append({"order": 7})
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    assert b.of(event).json() == {"order": 7}


@clause("003-20", "a dead letter has the error that caused it")
def dead_letter_error(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1, error=ValueError("no amount"))
    assert "no amount" in (b.of(event).last_error or "")


@clause("003-21", "a dead letter has the time of its final failure")
def dead_letter_time(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=1))
    b.clock.advance(3)
    b.fail(1)
    assert b.of(event).dead_at == b.clock.now()
