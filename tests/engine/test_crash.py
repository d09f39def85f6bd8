"""The engine is killed at every statement and inside a handler: nothing is lost, and effects happen once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

import penstock
from penstock.engine.local.engine import LocalEngine
from penstock.testing import CrashPoint, StatementCounter, VirtualClock
from tests.support.children import handlers
from tests.support.declarations import RETRY_AT_ONCE, subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.forks import killed_in_child
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.logs import MakeLog

EVENTS = 6
POLICY = {"ordering": "key", "lanes": 2, "retry": RETRY_AT_ONCE}


def append_with_one_failure(log: penstock.Log, group: str) -> None:
    log.append_many(
        group,
        [
            {"payload": {"do": "raise" if n == 2 else None}, "type": "t", "ordering_key": f"k{n % 2}"}
            for n in range(EVENTS)
        ],
    )


def run_engine(url: str, clock: VirtualClock, hook: Callable[[str, str], None], stream: str, isolation: str) -> None:
    with penstock.open(url, clock=clock, hook=hook) as log:
        one = subscription(handlers.counting, stream=stream, isolation=isolation, **POLICY)
        engine = LocalEngine(log, [one], until_drained=True)
        if isinstance(hook, CrashPoint):
            hook.arm()
        engine.start()
        engine.wait(PATIENCE_SECONDS)


def check_next_engine_finishes(log: penstock.Log, url: str, clock: VirtualClock, stream: str, base: list[int]) -> None:
    """The next engine finishes the work: every event is handled, with its effects once."""
    clock.advance(61)  # let the dead engine's leases expire
    run_local_until_drained(log, subscription(handlers.counting, stream=stream, isolation="inline", **POLICY))
    shown = log.deliveries(stream, "g")
    first = shown[0].offset
    states = {one.offset - first: str(one.state) for one in shown}
    assert states == {n: "DEAD" if n == 2 else "PUBLISHED" for n in range(EVENTS)}
    good = [first + n for n in range(EVENTS) if n != 2]
    assert sorted(done_offsets(url)[len(base) :]) == good
    assert sorted(e.json()["offset"] for e in log.read("seen", limit=10_000) if e.json()["offset"] >= first) == good
    assert [log.state(stream, "g", key)["seen"] for key in ("k0", "k1")] == [2, 3]


@pytest.mark.shows("X02", "K27")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_engine_killed_at_any_statement_loses_nothing(
    make_log: MakeLog, clock: VirtualClock, log_url: str, when: str
) -> None:
    log = make_log(clock=clock)
    create_done_table(log_url)
    append_with_one_failure(log, "whole")
    counter = StatementCounter()
    run_engine(log_url, clock, counter, "whole", "inline")
    assert {"lease.open", "read.lane", "state.read", "user_sql", "append", "lease.end", "commit"} <= {*counter.blocks}
    number = 0
    while True:
        number += 1
        stream = f"{when}-{number}"
        append_with_one_failure(log, stream)
        base = done_offsets(log_url)
        killed = killed_in_child(partial(run_engine, log_url, clock, CrashPoint(when, number), stream, "inline"))
        check_next_engine_finishes(log, log_url, clock, stream, base)
        if not killed:
            break
        if number > 40:
            number += 6  # later statements repeat the earlier ones, lease by lease
    assert number > 30


@pytest.mark.shows("X02", "K27")
def test_an_event_that_kills_the_engine_ends_dead_and_no_other_does(
    make_log: MakeLog, clock: VirtualClock, log_url: str
) -> None:
    """Killed between handle and settle: effects are recorded, other events are done, and nothing is settled."""
    log = make_log(clock=clock)
    create_done_table(log_url)
    log.append_many(
        "orders",
        [{"payload": {"do": "kill_engine" if n == 3 else None}, "type": "t", "ordering_key": "k"} for n in range(6)],
    )
    retry = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
    policy = {"retry": retry, "batch_size": 6, "lanes": 1}
    dead = 0
    for _ in range(20):

        def run() -> None:
            with penstock.open(log_url, clock=clock) as mine:
                engine = LocalEngine(mine, [subscription(handlers.counting, **policy)], until_drained=True)
                engine.start()
                engine.wait(PATIENCE_SECONDS)

        if not killed_in_child(run):
            break
        dead += 1
        clock.advance(61)
    assert dead >= 2, "must be claimed once with others, then alone until its budget is spent"
    states = {one.offset: str(one.state) for one in log.deliveries("orders", "g")}
    assert states == {n + 1: "DEAD" if n == 3 else "PUBLISHED" for n in range(6)}
    assert sorted(done_offsets(log_url)) == [1, 2, 3, 5, 6] and log.state("orders", "g", "k")["seen"] == 5
    assert "lease_expired" in str(log.delivery("orders", "g", 4).last_error)
