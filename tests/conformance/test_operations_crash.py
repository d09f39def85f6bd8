"""Operations whose runners are killed at any statement, two at a time, while somebody pauses, and keys halt."""

from __future__ import annotations

import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.log.operations.step import Stepped, step
from penstock.testing import VirtualClock
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw

RETRY = penstock.Retry(max_attempts=1)
EVENTS, KEYS = 40, 7


class Killed(Exception):
    """The process is gone: nothing of its transaction is left."""


class Killer:
    """A hook that ends the process at the nth statement from now on, before or after it."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.seen = 0

    def __call__(self, when: str, block: str) -> None:
        self.seen += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise Killed(f"{when} {block}")


def prepare(log: penstock.Log, on_dead: str, *, events: int = EVENTS) -> None:
    """An ordered group with dead letters of two kinds, several to a key."""
    log.create_group("orders", "g", retry=RETRY, ordering="key", on_dead=on_dead, lanes=2)
    log.append_many(
        "orders", [{"payload": {"n": n}, "type": "t", "ordering_key": f"k{n % KEYS}"} for n in range(events)]
    )
    for _ in range(events):
        lease = log.claim("orders", "g", claimed_by="w")
        if lease is None:
            break
        bad = [one for one in lease.events if one.offset % 3]
        lease.settle(dead={one.event_id: f"Kind{one.offset % 2}: no" for one in bad})
        if on_dead == "halt":  # so that its next ones die, too
            for key in {one.ordering_key for one in bad}:
                log.skip("orders", "g", key or "")
    if on_dead == "halt":
        with raw(log.store.url) as sql:  # as if nobody had skipped them
            sql("update penstock.deliveries set reason = null where state = 'DEAD' and \"offset\" > 20")


def moved_by(log: penstock.Log) -> Counter[int]:
    with raw(log.store.url) as sql:
        return Counter(row[0] for row in sql("select \"offset\" from penstock.attempt_log where outcome = 'redriven'"))


def dead_offsets(log: penstock.Log, error: str | None = None) -> list[int]:
    return [one.offset for one in log.deliveries("orders", "g", state="DEAD", error=error)]


@pytest.fixture
def logs(make_log: MakeLog, clock: VirtualClock) -> Iterator[tuple[penstock.Log, penstock.Log, Killer]]:
    killer = Killer()
    yield make_log(clock=clock), make_log(clock=clock, hook=killer), killer


@pytest.mark.shows("O04")
def test_killed_at_every_statement_it_goes_on_and_moves_nothing_twice(
    logs: tuple[penstock.Log, penstock.Log, Killer], clock: VirtualClock
) -> None:
    log, victim, killer = logs
    prepare(log, "continue")
    wanted = dead_offsets(log)
    operation = log.operation("redrive", "orders", "g", all=True).start()
    number = operation.id or 0
    kills = 0
    for at in range(1, 200):
        with log.store.transaction() as tx:
            ends = tx.now()
            taken = tx.one("operation.take", id=number, me="victim", now=ends, latest=ends, expires_at=ends)
        if taken is None:
            break
        token = taken.token
        before = operation.refresh().moved
        killer.left = at
        try:
            with victim.store.transaction() as tx:
                result = step(tx, number, token, most=5)
        except Killed:
            kills += 1
            after = operation.refresh().moved  # (the last point is behind the commit)
            assert after in (before, before + 5) and after == sum(moved_by(log).values()), "all of a step, or nothing"
            continue
        killer.left = None
        assert result in (Stepped.MORE, Stepped.ENDED)
        if kills:  # every statement of one step was tried; the rest at once
            break
    assert kills > 10
    clock.advance(31)
    assert operation.run(timeout=10).state == "done"
    assert moved_by(log) == Counter(wanted) and operation.info.moved == len(wanted)


@pytest.mark.shows("O04")
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_counts_are_exact_and_keys_stay_in_order(
    logs: tuple[penstock.Log, penstock.Log, Killer], clock: VirtualClock, seed: int
) -> None:
    log, victim, killer = logs
    rng = random.Random(seed)
    on_dead = rng.choice(["continue", "halt"])
    prepare(log, on_dead)
    options = {
        "canary": rng.choice([None, 1, 5]),
        "rate_per_second": rng.choice([None, 4]),
        "stop_on_return": rng.choice([None, 3]),
    }
    error = rng.choice([None, "Kind1"])
    wanted = dead_offsets(log, error)
    operation = log.operation("redrive", "orders", "g", error=error, all=error is None, **options)
    plan = operation.plan()
    assert plan.count == len(wanted)
    operation.start(plan)
    handled: dict[str, list[int]] = defaultdict(list)
    for _ in range(120):
        what = rng.random()
        if what < 0.45:
            runner = victim if rng.random() < 0.6 else log
            killer.left = rng.randint(1, 40) if rng.random() < 0.5 else None
            with contextlib.suppress(Killed):
                runner.run_operations(0)
            killer.left = None
        elif what < 0.8:
            work(log, handled, rng)
        elif what < 0.86 and not operation.refresh().ended:
            operation.pause() if rng.random() < 0.5 else operation.resume()
        else:
            clock.advance(rng.choice([0.3, 1, 35]))
        if operation.refresh().ended:
            break
    finish(log, operation, clock, handled, rng)
    info = operation.refresh()
    moved = moved_by(log)
    assert info.ended and set(moved.values()) <= {1} and info.moved == len(moved)
    assert set(moved) <= set(wanted)
    if info.state == "stopped":
        assert options["stop_on_return"] and info.returned >= 3
    else:
        assert info.state == "done" and set(moved) == set(wanted)
    for key, offsets in handled.items():
        assert offsets == sorted(offsets), (key, offsets)


def finish(
    log: penstock.Log, operation: Any, clock: VirtualClock, handled: dict[str, list[int]], rng: random.Random
) -> None:
    """Let it end, if it has not, and handle what is left."""
    for _ in range(60):
        if operation.refresh().ended:
            break
        operation.resume()
        clock.advance(40)
        log.run_operations()
        work(log, handled, rng)
    while work(log, handled, rng):
        pass


def work(log: penstock.Log, handled: dict[str, list[int]], rng: random.Random) -> bool:
    """Handle what is due: note which event of a key came when; some die again, with the error they had."""
    lease = log.claim("orders", "g", limit=20, claimed_by="w")
    if lease is None:
        return False
    died = set()
    for event in lease.events:
        if event.ordering_key in died:  # given back below
            continue
        handled[event.ordering_key or ""].append(event.offset)
        if rng.random() < 0.1:
            died.add(event.ordering_key)
    bad = {}
    for event in lease.events:
        if event.ordering_key in died and handled[event.ordering_key or ""][-1] == event.offset:
            bad[event.event_id] = f"Kind{event.offset % 2}: no"
    rest = [one for one in lease.events if one.ordering_key in died and one.event_id not in bad]
    later = [one for one in rest if one.offset > handled[one.ordering_key or ""][-1]]
    lease.settle(dead=bad, released=later)
    return True
