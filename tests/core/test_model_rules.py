"""Random commands on the pure model, to find contradictions in the rules.

Two promises are checked at every claim (a key is in one lease at a time; nothing of a key is handed out while an
earlier event of it is unresolved elsewhere), one after every step (an event is in exactly one place), and one at the
end: once the faults stop, everything is PUBLISHED or DEAD.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.delivery import Reason, State
from penstock.core.retry import Retry
from penstock.errors import IllegalTransition, InFlight, LeaseLost
from penstock.testing.model import GroupModel, ModelEvent, ModelLease

START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = [None, "a", "a", "b"]


class Rules(RuleBasedStateMachine):
    """Any interleaving of commands keeps the promises."""

    model: GroupModel
    claims: dict[int, int]

    @initialize(
        ordered=st.booleans(),
        lanes=st.sampled_from([1, 2, 8]),
        on_dead=st.sampled_from(["continue", "halt"]),
        max_attempts=st.integers(1, 3),
    )
    def make(self, ordered: bool, lanes: int, on_dead: str, max_attempts: int) -> None:
        retry = Retry(max_attempts=max_attempts, base_seconds=5, factor=2, jitter=0)
        self.model = GroupModel(
            retry,
            START,
            lease_seconds=30,
            ordered=ordered,
            exclusive=ordered or lanes > 1,
            lanes=lanes,
            on_dead=on_dead,
        )
        self.claims = {}

    @rule(key=st.sampled_from(KEYS), delay=st.sampled_from([None, None, None, 10]), count=st.integers(1, 4))
    def append(self, key: str | None, delay: int | None, count: int) -> None:
        for _ in range(count):
            available = None if delay is None else self.model.now + timedelta(seconds=delay)
            self.model.events.append(ModelEvent(len(self.model.events) + 1, key, "t", available, self.model.now))

    @rule(limit=st.sampled_from([0, 1, 2, 5, 100]), worker=st.sampled_from(["w1", "w2"]))
    def claim(self, limit: int, worker: str) -> None:
        before = {o: self._place(o) for o in range(1, len(self.model.events) + 1)}
        lease = self.model.claim(limit, worker)
        if lease is None:
            return
        assert 0 < len(lease.members) <= limit
        for offset in lease.members:
            self._check_member(lease, offset, before[offset])
            self.claims[offset] = self.claims.get(offset, 0) + 1
            found = self.model.delivery(self.model.events[offset - 1])
            assert found is not None and found.state is State.CLAIMED
            assert found.attempts == self.claims[offset], "a claim must count one attempt"

    def _check_member(self, lease: ModelLease, offset: int, before: object) -> None:
        model = self.model
        event = model.events[offset - 1]
        assert event.available_at is None or event.available_at <= model.now or offset in model.rows
        if not model.ordered or event.key is None:
            return
        for earlier in model.events[: offset - 1]:
            if earlier.key != event.key or earlier.offset in lease.members:
                continue
            place = model.delivery(earlier)
            assert place is not None
            row = model.rows.get(earlier.offset)
            resolved = place.state is State.PUBLISHED or (row is not None and model.resolved(row))
            assert resolved, f"{offset} was handed out while {earlier.offset} of its key is {place.state}"

    def _place(self, offset: int) -> object:
        return self.model.delivery(self.model.events[offset - 1])

    def _lease(self, data: st.DataObject) -> ModelLease | None:
        leases = [lease for lease in self.model.leases.values() if lease.members][-6:]
        return data.draw(st.sampled_from(leases)) if leases else None

    @rule(data=st.data())
    def settle_newest(self, data: st.DataObject) -> None:
        if self.model.open_leases():
            self.settle_one(data, self.model.open_leases()[-1])

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        if lease := self._lease(data):
            self.settle_one(data, lease)

    def settle_one(self, data: st.DataObject, lease: ModelLease) -> None:
        outcome = st.sampled_from(["done", "done", "done", "failed", "dead", "released"])
        outcomes = {offset: data.draw(outcome) for offset in lease.members}
        tail = data.draw(st.integers(0, len(lease.members)))
        for offset in lease.members[tail:]:
            outcomes[offset] = "released"
        said = {word: [o for o, w in outcomes.items() if w == word] for word in ("failed", "dead", "released")}
        stale = lease.outcome is not None or lease.expires_at <= self.model.now
        snapshot = repr(self.model)
        delay = data.draw(st.sampled_from([0, 20]))
        try:
            counts = self.model.settle(lease.id, **said, due_after_seconds=delay)
        except LeaseLost:
            assert stale and repr(self.model) == snapshot, "a stale settle changed something"
            return
        assert not stale and sum(counts) == len(lease.members)

    @rule(data=st.data(), extend=st.booleans())
    def release_or_extend(self, data: st.DataObject, extend: bool) -> None:
        lease = self._lease(data)
        if lease is None:
            return
        try:
            self.model.extend(lease.id) if extend else self.model.release(lease.id)
        except LeaseLost:
            assert lease.outcome is not None or lease.expires_at <= self.model.now

    @rule(seconds=st.sampled_from([1, 5, 31]))
    def wait(self, seconds: int) -> None:
        self.model.now += timedelta(seconds=seconds)

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        if data.draw(st.integers(0, 4)):
            return  # rarely, because it discards what other rules built up
        target = data.draw(st.integers(0, len(self.model.events)))
        self.model.rewind(target)
        for offset in range(target + 1, len(self.model.events) + 1):
            self.claims.pop(offset, None)

    @precondition(lambda self: self.model.lanes < 16 and self.model.exclusive)
    @rule()
    def double(self) -> None:
        try:
            self.model.double_lanes()
        except InFlight:
            assert self.model.open_leases()

    @rule(data=st.data(), what=st.sampled_from(["redrive", "replay", "kill", "reschedule", "skip"]))
    def operate(self, data: st.DataObject, what: str) -> None:
        if not self.model.events:
            return
        offset = data.draw(st.integers(1, len(self.model.events)))
        snapshot = repr(self.model)
        try:
            match what:
                case "redrive":
                    self.model.restart(offset, Reason.REDRIVEN)
                    self.claims.pop(offset, None)
                case "replay":
                    self.model.restart(offset, Reason.REPLAYED)
                    self.claims.pop(offset, None)
                case "kill":
                    self.model.kill(offset)
                    self.claims[offset] = self.claims.get(offset, 0) + 1
                case "reschedule":
                    self.model.reschedule(offset, self.model.now + timedelta(seconds=7))
                case _:
                    self.model.skip(self.model.events[offset - 1].key or "a")
        except (IllegalTransition, InFlight):
            assert repr(self.model) == snapshot

    @invariant()
    def every_event_is_in_one_place(self) -> None:
        if not hasattr(self, "model"):
            return
        model = self.model
        for event in model.events:
            lane, offset = model.lane(event), event.offset
            places = [
                offset in model.rows,
                any(lease.is_range and offset in lease.members for lease in model.open_leases())
                and offset not in model.rows,
                any(p.lane == lane and p.low < offset <= p.high for p in model.returned) and offset not in model.rows,
                offset in model.done and offset not in model.rows,
                offset > model.cursor(lane) and offset not in model.rows,
            ]
            assert sum(places) == 1, (event, places)

    @invariant()
    def one_lease_a_lane(self) -> None:
        if hasattr(self, "model") and self.model.exclusive:
            lanes = [lease.lane for lease in self.model.open_leases()]
            assert len(lanes) == len(set(lanes))

    def teardown(self) -> None:
        """Once the faults stop, everything drains."""
        if not hasattr(self, "model"):
            return
        model = self.model
        for _ in range(200 + 40 * len(model.events)):
            for key in {model.events[o - 1].key for o, r in model.rows.items() if r.state is State.DEAD}:
                model.skip(key or "")
            lease = model.claim(100, "last")
            if lease is not None:
                model.settle(lease.id)
            elif all(self._finished(event) for event in model.events):
                return
            else:
                model.now += timedelta(seconds=11)
        raise AssertionError(f"not drained: {[e.offset for e in model.events if not self._finished(e)]}")

    def _finished(self, event: ModelEvent) -> bool:
        found = self.model.delivery(event)
        return found is not None and found.state in (State.PUBLISHED, State.DEAD)


Rules.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.generate, Phase.reuse],
    report_multiple_bugs=False,
)
TestRules = pytest.mark.shows("X01")(Rules.TestCase)
