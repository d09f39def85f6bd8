"""Random histories: whatever happens, and whenever somebody records, flows are what the leases did."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock.core.timeline import start_of
from penstock.errors import InFlight, LeaseLost, Pruned
from penstock.log.lease import Lease
from penstock.testing import VirtualClock
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw

pytestmark = pytest.mark.shows("O10")
FLOWS = ("published", "failed", "dead", "released")
STREAM, GROUPS = "orders", ("plain", "ordered")
STEPS = 110


class History:
    """Does something at random, and keeps what became of every lease, by group and minute."""

    def __init__(self, log: penstock.Log, other: penstock.Log, clock: VirtualClock, seed: int) -> None:
        self.log, self.other, self.clock = log, other, clock
        self.random = random.Random(seed)
        self.held: list[Lease] = []
        self.seen: set[int] = set()
        self.minutes: dict[str, dict[datetime, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self.settled: Counter[str] = Counter()  # as the settles answered
        retry = penstock.Retry(max_attempts=3, base_seconds=30, jitter=0)
        log.create_group(STREAM, "plain", retry=retry, lease_seconds=90)
        log.create_group(STREAM, "ordered", ordering="key", lanes=2, retry=retry, lease_seconds=90)
        self.actions: list[tuple[int, Callable[[], Any]]] = [
            (20, self.append),
            (30, self.claim),
            (30, self.settle),
            (5, self.release),
            (25, self.wait),
            (6, self.log.reap),
            (4, self.prune),
            (2, self.rewind),
            (3, self.redrive),
            (1, self.double),
            (12, lambda: self.random.choice((self.log, self.other)).record_metrics()),
        ]

    def step(self) -> None:
        weights = [weight for weight, _ in self.actions]
        (action,) = self.random.choices([action for _, action in self.actions], weights)
        action()
        self.watch()

    def append(self) -> None:
        keys = [f"k{self.random.randrange(8)}" for _ in range(self.random.randrange(1, 30))]
        self.log.append_many(STREAM, [{"payload": {}, "type": "t", "ordering_key": key} for key in keys])

    def claim(self) -> None:
        seconds = self.random.choice((20, 90, 3600))
        limit, group = self.random.choice((1, 3, 20)), self.random.choice(GROUPS)
        lease = self.log.claim(STREAM, group, limit=limit, claimed_by="w", lease_seconds=seconds)
        if lease is not None:
            self.held.append(lease)

    def settle(self) -> None:
        if not self.held:
            return
        lease = self.held.pop(self.random.randrange(len(self.held)))
        outcomes: dict[str, Any] = {"failed": {}, "dead": {}}
        for event in lease.events:
            kind = self.random.choices(("done", "failed", "dead"), (8, 1, 1))[0]
            if kind != "done":
                outcomes[kind][event.event_id] = "no"
        try:
            answer = lease.settle(**outcomes)
        except LeaseLost:
            return
        self.settled.update({name: getattr(answer, name) for name in FLOWS})

    def release(self) -> None:
        if self.held:
            lease = self.held.pop()
            with suppress(LeaseLost):
                self.settled["released"] += lease.release().released

    def wait(self) -> None:
        self.clock.advance(self.random.choice((1, 7, 30, 59.999999, 60, 61, 200, 4000)))

    def prune(self) -> None:
        back = timedelta(seconds=self.random.choice((0, 60, 3000)))
        self.log.prune(STREAM, before=self.clock.now() - back, keep_dead=self.random.random() < 0.5)
        with raw(self.log.store.url) as sql:
            left = {int(row[0]) for row in sql("select id from penstock.leases")}
        self.held = [lease for lease in self.held if lease.id in left]

    def rewind(self) -> None:
        back = timedelta(seconds=self.random.choice((60, 5000)))
        with suppress(Pruned, InFlight):
            self.log.rewind(STREAM, self.random.choice(GROUPS), to=self.clock.now() - back)

    def redrive(self) -> None:
        self.log.redrive(STREAM, self.random.choice(GROUPS), all=True, by="me")

    def double(self) -> None:
        with suppress(InFlight):
            self.log.double_lanes(STREAM, "ordered")

    # --- the model ---------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look at every lease that has ended since the last look."""
        with raw(self.log.store.url) as sql:
            rows = sql(
                "select l.id, g.group_name, l.ended_at, l.published, l.failed, l.dead, l.released"
                " from penstock.leases l join penstock.groups g on g.group_id = l.group_id where l.outcome is not null"
            )
        for number, group, ended_at, *counts in rows:
            if number not in self.seen:
                self.seen.add(number)
                moment = ended_at if isinstance(ended_at, datetime) else _moment(ended_at)
                values = {name: count or 0 for name, count in zip(FLOWS, counts, strict=True)}
                self.minutes[group][start_of(moment, 60)].update(values)

    def check(self) -> None:
        """Every minute of the last hours, and the sum over all time."""
        now = self.clock.now()
        for group in GROUPS:
            model = self.minutes[group]
            since = max(self.clock.start, now - timedelta(hours=20))
            recent = self.log.series(STREAM, group, since=since, until=now, step_seconds=60)
            for point in recent.points:
                wanted = model.get(point.at, Counter())
                assert {name: getattr(point, name) for name in FLOWS} == {name: wanted[name] for name in FLOWS}, (
                    point.at
                )
            whole = self.log.series(STREAM, group, since=self.clock.start, until=now, step_seconds=3600)
            total = {name: sum(getattr(one, name) for one in whole.points) for name in FLOWS}
            assert total == {name: sum(one[name] for one in model.values()) for name in FLOWS}


def _moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


@pytest.mark.parametrize("seed", range(3))
def test_flows_are_what_the_leases_did(make_log: MakeLog, clock: VirtualClock, seed: int) -> None:
    log = make_log(clock=clock)
    history = History(log, make_log(clock=clock), clock, seed)
    clock.advance(1)
    for number in range(STEPS):
        history.step()
        if number % 40 == 39:
            history.check()
    history.check()
    settled = {name: sum(one[name] for group in GROUPS for one in history.minutes[group].values()) for name in FLOWS}
    assert settled["published"] == history.settled["published"] > 0
    assert all(settled[name] >= history.settled[name] for name in FLOWS), "expired and rewound leases count, too"
    for days in (3, 40):
        clock.advance(days * 86_400)
        log.record_metrics()
        whole = {
            group: log.series(STREAM, group, since=clock.start, until=clock.now(), step_seconds=3600)
            for group in GROUPS
        }
        for group, found in whole.items():
            by_hour = Counter({one.at: one.published for one in found.points if one.published})
            model: Counter[datetime] = Counter()
            for at, counts in history.minutes[group].items():
                model[start_of(at, 3600)] += counts["published"]
            assert +by_hour == +model
