"""History: every transition of a delivery over all its lives; view, API and command line agree."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock.cli.app import run as run_command
from penstock.testing import VirtualClock
from tests.support.raw_sql import RawSql, raw

Line = tuple[str, str | None, int | None, str | None]  # outcome, by, lease, error


@dataclass
class Diary:
    """Runs random actions on a log and records what happened to every delivery."""

    log: penstock.Log
    clock: VirtualClock
    dice: random.Random
    sql: RawSql
    ordered: bool
    lines: dict[Any, list[Line]] = field(default_factory=dict)
    claims: dict[Any, int] = field(default_factory=dict)
    open: list[penstock.Lease] = field(default_factory=list)

    def tick(self, seconds: float = 0.001) -> datetime:
        return self.clock.advance(seconds)

    def note(self, one: Any, outcome: str, by: str | None, lease: int | None = None, error: str | None = None) -> None:
        self.lines.setdefault(one, []).append((outcome, by, lease, error))
        if outcome == "claimed":
            self.claims[one] = self.claims.get(one, 0) + 1

    # --- what may happen ---------------------------------------------------------------------------------------------

    def append(self) -> None:
        for _ in range(self.dice.randint(1, 5)):
            key = self.dice.choice([None, "a", "b"])
            self.log.append("orders", {}, type=self.dice.choice(["a.b", "a.c", "d"]), ordering_key=key)

    def claim(self) -> None:
        self._reap()
        worker = self.dice.choice(["w1", "w2"])
        lease = self.log.claim("orders", "g", limit=self.dice.choice([1, 2, 5, 100]), claimed_by=worker)
        if lease is None:
            return
        for event in lease.events:
            self.note(event.event_id, "claimed", worker, lease.id)
            assert event.total_attempts == self.claims[event.event_id], "total attempts count the claims of all lives"
        self.open.append(lease)

    def settle(self) -> None:
        if not self.open:
            return
        lease = self.open.pop(self.dice.randrange(len(self.open)))
        if lease.expires_at <= self.clock.now():
            with pytest.raises(penstock.LeaseLost):
                lease.settle()
            self.open.append(lease)
            self._reap()
            return
        words = {event.event_id: self.dice.choice(["done", "done", "failed", "dead"]) for event in lease.events}
        keys: dict[Any, int] = {}
        for event in lease.events:  # an ordered key stops at a failure
            if self.ordered and event.ordering_key in keys:
                words[event.event_id] = "released"
            elif words[event.event_id] == "failed" and event.ordering_key is not None and event.failures < 1:
                keys[event.ordering_key] = 1
        said: dict[str, dict[Any, str]] = {
            "failed": {one: f"failed {lease.id}" for one, word in words.items() if word == "failed"},
            "dead": {one: f"dead {lease.id}" for one, word in words.items() if word == "dead"},
        }
        failures = {event.event_id: event.failures for event in lease.events}
        lease.settle(**said)
        for one, word in words.items():
            if word == "done":
                self.note(one, "published", lease.claimed_by, lease.id)
            elif word == "failed" and failures[one] == 1:
                self.note(one, "dead", lease.claimed_by, lease.id, said["failed"][one])
            elif word == "released":
                self.note(one, "released", lease.claimed_by, lease.id)
            else:
                self.note(one, word, lease.claimed_by, lease.id, said[word][one])

    def release(self) -> None:
        if not self.open:
            return
        lease = self.open[-1]
        if lease.expires_at > self.clock.now():
            self.open.pop().release()
            for event in lease.events:
                self.note(event.event_id, "released", lease.claimed_by, lease.id)

    def wait(self) -> None:
        self.tick(self.dice.choice([3, 40]))
        self._reap()

    def _reap(self) -> None:
        self.log.reap()
        for lease in [one for one in self.open if one.expires_at <= self.clock.now()]:
            self.open.remove(lease)
            error = f"lease_expired: {lease.claimed_by} since {lease.row.claimed_at.isoformat()}"
            for event in lease.events:
                outcome = "expired"
                if len(lease.events) == 1:
                    outcome = "dead" if event.failures == 1 else "failed"
                self.note(event.event_id, outcome, lease.claimed_by, lease.id, error)

    def redrive(self) -> None:
        for one in self._in("DEAD"):
            error = one.last_error
            assert self.log.redrive("orders", "g", event_ids=[one.event_id], by="ann").count == 1
            self.note(one.event_id, "redriven", "ann", None, error)

    def replay(self) -> None:
        for one in self._in("PUBLISHED"):
            assert one.published_at is not None
            assert self.log.replay("orders", "g", event_ids=[one.event_id], by="bob").count == 1
            when = one.published_at.strftime("published_at %Y-%m-%dT%H:%M:%S.%fZ")
            self.note(one.event_id, "replayed", "bob", None, when)

    def kill(self) -> None:
        for one in self._in("PENDING"):
            self.log.kill("orders", "g", event_ids=[one.event_id], reason="enough", by="eve")
            self.note(one.event_id, "claimed", "eve")
            self.note(one.event_id, "killed", "eve", None, "enough")

    def reschedule(self) -> None:
        for one in self._in("PENDING"):
            due = self.clock.now() + timedelta(seconds=1)
            self.log.reschedule("orders", "g", event_ids=[one.event_id], available_at=due, by="joe")
            self.note(one.event_id, "rescheduled", "joe", None, due.strftime("available_at %Y-%m-%dT%H:%M:%S.%fZ"))

    def rewind(self) -> None:
        everything = self.log.deliveries("orders", "g", limit=10_000)
        if not everything or self.dice.random() < 0.6:
            return
        target = self.dice.choice(everything).offset - self.dice.choice([0, 1])
        self._reap()
        for lease in self.open:
            for event in lease.events:
                self.note(event.event_id, "released", lease.claimed_by, lease.id)
        self.open.clear()
        begun = {row[0] for row in self.sql(_BEGUN)}
        self.log.rewind("orders", "g", to=target, by="zoe")
        for one in everything:
            if one.offset > target and one.offset in begun:
                self.note(one.event_id, "rewound", "zoe")

    def _in(self, state: str) -> list[Any]:
        found = self.log.deliveries("orders", "g", state=state, limit=100)
        return self.dice.sample(found, min(len(found), self.dice.randint(0, 2)))


# Deliveries that have a row or lie below the cursor of their lane.
_BEGUN = """
select e."offset" from penstock.events e join penstock.lane l on l.stream = e.stream and l.group_name = 'g'
 where coalesce(e.bucket, e."offset" - e."offset" / 256 * 256) * l.lanes / 256 = l.lane and e."offset" <= l.cursor
union select "offset" from penstock.deliveries"""

_LINES = """
select outcome, "by", lease, error, error_code, at, state, attempt, failures, replays, fingerprint
  from penstock.history where group_name = 'g' and event_id = %s order by at, lease is null, lease, step, line"""

_STEPS = ["append", "claim", "claim", "claim", "settle", "settle", "release", "wait", "redrive", "replay", "kill"]
_STEPS += ["reschedule", "rewind"]


@pytest.mark.shows("K35", "K46", "K47")
@pytest.mark.parametrize("seed", range(6))
def test_view_api_and_command_line_show_every_transition(
    clocked: penstock.Log, clock: VirtualClock, log_url: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(seed)
    ordered = bool(seed % 2)
    retry = penstock.Retry(max_attempts=2, base_seconds=1, jitter=0)
    lanes = dice.choice([1, 2, 8])
    clocked.create_group(
        "orders", "g", retry=retry, lease_seconds=30, ordering="key" if ordered else None, lanes=lanes, types=["a.*"]
    )
    with raw(log_url) as sql:
        diary = Diary(clocked, clock, dice, sql, ordered)
        diary.append()
        for _ in range(90):
            diary.tick()
            getattr(diary, dice.choice(_STEPS))()
        shown = {one.event_id: one for one in clocked.deliveries("orders", "g", limit=10_000)}
        assert sum(map(len, diary.lines.values())) > 20, "no random action did anything"
        for event_id, one in shown.items():
            expected = diary.lines.get(event_id, [])
            assert one.total_attempts == diary.claims.get(event_id, 0)
            history = clocked.delivery("orders", "g", event_id).history
            told = [(line.outcome, line.by, line.lease, line.error) for line in history]
            plain = [
                line if line[0] != "rewound" else (*line[:3], None) for line in told
            ]  # the line also names what it ended
            assert plain == expected, event_id
            rows = sql(_LINES, event_id)
            assert [tuple(row[:4]) for row in rows] == told
            assert [row[6] for row in rows][-1:] == [str(one.state)][: len(rows)], (
                "the last line does not match the state"
            )
            assert [(row[7], row[8], row[9]) for row in rows] == [(h.attempt, h.failures, h.replays) for h in history]
            assert [h.at for h in history] == sorted(h.at for h in history)
    some = dice.sample(sorted(shown), 3)
    for event_id in some:
        assert run_command(["show", "orders", str(event_id), "--json", "--url", log_url]) == 0
        (printed,) = json.loads(capsys.readouterr().out)["deliveries"]
        history = clocked.delivery("orders", "g", event_id).history
        names = ("outcome", "by", "lease", "error", "error_code", "attempt", "error_type", "fingerprint", "traceback")
        assert [[line[name] for name in names] for line in printed["history"]] == [
            [getattr(line, name) for name in names] for line in history
        ]
