"""A state machine that compares a store with the pure model, command by command, with stale tokens."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import penstock
from penstock.core.delivery import Reason
from penstock.core.lease import Effects, Failure, Settlement
from penstock.errors import IllegalTransition, InFlight, LeaseLost
from penstock.log import crash_guard
from penstock.testing import VirtualClock
from penstock.testing.model import GroupModel, ModelEvent, ModelLease

GROUP = "g"
KEYS = [None, "a", "a", "b", "c"]
TYPES = ["order.created", "order.paid", "note"]
WORDS = ("failed", "dead", "released", "died", "suspects")
fresh = itertools.count()


class StoreAgainstModel(RuleBasedStateMachine):
    """Send the same commands to both and compare the answers."""

    log: penstock.Log
    clock: VirtualClock

    @initialize(
        ordered=st.booleans(),
        keyed=st.booleans(),
        lanes=st.sampled_from([1, 2, 8]),
        on_dead=st.sampled_from(["continue", "halt"]),
        max_attempts=st.integers(1, 3),
        types=st.sampled_from([None, ["order.*"]]),
    )
    def make(
        self, ordered: bool, keyed: bool, lanes: int, on_dead: str, max_attempts: int, types: list[str] | None
    ) -> None:
        self.stream = f"s{next(fresh)}"
        # The offset decides the lane of an event without a key: start every example at the same offset, modulo 256.
        filler = -self.log.stats().horizon % 256
        self.log.append_many("filler", [{"payload": {}, "type": "filler"}] * filler)
        retry = penstock.Retry(max_attempts=max_attempts, base_seconds=5, factor=2, jitter=0)
        exclusive = ordered or keyed
        self.log.create_group(
            self.stream,
            GROUP,
            retry=retry,
            lease_seconds=30,
            ordering="key" if ordered else None,
            keyed=keyed,
            lanes=lanes,
            on_dead=on_dead,
            types=types,
        )
        self.model = GroupModel(
            retry,
            self.clock.now(),
            lease_seconds=30,
            ordered=ordered,
            exclusive=exclusive,
            lanes=lanes if exclusive else 1,
            on_dead=on_dead,
            types=types,
        )
        self.ids: list[Any] = []  # event ids by model offset - 1
        self.pairs: list[tuple[ModelLease, penstock.Lease]] = []

    def _id(self, offset: int) -> Any:
        return self.ids[offset - 1]

    @rule(
        key=st.sampled_from(KEYS),
        kind=st.sampled_from(TYPES),
        delay=st.sampled_from([None, None, None, 10]),
        count=st.integers(1, 4),
    )
    def append(self, key: str | None, kind: str, delay: int | None, count: int) -> None:
        now = self.clock.now()
        available = None if delay is None else now + timedelta(seconds=delay)
        for _ in range(count):
            answer = self.log.append(self.stream, {}, type=kind, ordering_key=key, available_at=available)
            self.ids.append(answer.event_id)
            self.model.events.append(ModelEvent(len(self.ids), key, kind, available, now, answer.offset))

    @rule(limit=st.sampled_from([0, 1, 2, 5, 100]), worker=st.sampled_from(["w1", "w2"]))
    def claim(self, limit: int, worker: str) -> None:
        expected = self.model.claim(limit, worker)
        lease = self.log.claim(self.stream, GROUP, limit=limit, claimed_by=worker)
        assert (expected is None) == (lease is None), (expected, lease)
        if expected is None or lease is None:
            return
        assert [event.event_id for event in lease.events] == [self._id(o) for o in expected.members]
        for event, offset in zip(lease.events, expected.members, strict=True):
            found = self.model.delivery(self.model.events[offset - 1])
            assert found is not None and event.attempts == found.attempts and event.failures == found.failures
        self.pairs.append((expected, lease))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), newest=st.booleans())
    def settle(self, data: st.DataObject, newest: bool) -> None:
        expected, lease = self.pairs[-1] if newest else data.draw(st.sampled_from(self.pairs[-6:]))
        words = st.sampled_from(["done", "done", "done", "failed", "dead", "released", "died", "suspects"])
        outcomes = {offset: data.draw(words) for offset in expected.members}
        back = st.sampled_from(["released", "released", "released", "failed", "dead", "died", "suspects"])
        for offset in expected.members[data.draw(st.integers(0, len(expected.members))) :]:
            outcomes[offset] = data.draw(back)
        said = {word: [o for o, w in outcomes.items() if w == word] for word in WORDS}
        delay = data.draw(st.sampled_from([0, 20]))
        effects = data.draw(st.sampled_from(["none", "each", "each", "lump"]))
        each = expected.members if effects == "each" else []
        lost = False
        counts = (0, 0, 0, 0)
        settlement = self._settlement(lease, said, delay, each)
        if effects == "lump" and not self._lump(expected, lease, settlement):
            return
        try:
            counts = self.model.settle(expected.id, **said, due_after_seconds=delay, effects=each)
        except LeaseLost:
            lost = True
        try:
            answer = lease.apply(settlement)
        except (LeaseLost, penstock.SettleMismatch):
            assert lost
            return
        if not lost:
            assert (answer.published, answer.failed, answer.dead, answer.released) == counts
        # else: a repeated settle, which returns the first answer
        happened = [event.json()["offset"] for event in self.log.read(f"{self.stream}-out", limit=10_000)]
        assert happened == self.model.effects, "effects differ from those of the successes"

    def _lump(self, expected: ModelLease, lease: penstock.Lease, said: Settlement) -> bool:
        """Effects without an event are refused unless every event succeeds; return whether to continue without them."""
        out = {"stream": f"{self.stream}-out", "payload": {"offset": 0}, "type": "t"}
        whole = not (said.failed or said.dead or said.released or said.suspects) and said.upto in (None, lease.row.high)
        if whole:
            return True
        try:
            lease.apply(replace(said, effects=Effects(emit=[out])))
            raise AssertionError("effects of a lease that is not done were taken")
        except penstock.UnattributedEffect:
            assert expected.outcome is None
            return True
        except (LeaseLost, penstock.SettleMismatch):
            assert expected.outcome is not None or expected.expires_at <= self.model.now
            return False

    def _settlement(
        self, lease: penstock.Lease, said: dict[str, list[int]], delay: float, effects: list[int]
    ) -> Settlement:
        stored = {word: [self._stored(o) for o in offsets] for word, offsets in said.items()}
        rows = {*stored["failed"], *stored["dead"], *stored["died"], *stored["suspects"]}
        upto, back = lease.split(set(stored["released"]), rows)
        died = Failure("process_died", "process_died: it was alone")
        return Settlement(
            failed=dict.fromkeys(stored["failed"], Failure("error", "failed")) | dict.fromkeys(stored["died"], died),
            dead=dict.fromkeys(stored["dead"], Failure("error", "dead")),
            released=frozenset(back),
            suspects=dict.fromkeys(stored["suspects"], Failure("process_died", "process_died: several ran")),
            upto=upto,
            due_after_seconds=delay,
            event_effects={self._stored(o): self._effects(o) for o in effects},
        )

    def _effects(self, offset: int) -> Effects:
        return Effects(emit=[{"stream": f"{self.stream}-out", "payload": {"offset": offset}, "type": "t"}])

    def _stored(self, offset: int) -> int:
        stored = self.model.events[offset - 1].stored_offset
        assert stored is not None
        return stored

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), extend=st.booleans())
    def release_or_extend(self, data: st.DataObject, extend: bool) -> None:
        expected, lease = data.draw(st.sampled_from(self.pairs[-6:]))
        lost = False
        try:
            self.model.extend(expected.id) if extend else self.model.release(expected.id)
        except LeaseLost:
            lost = True
        try:
            lease.extend() if extend else lease.release()
            assert not lost
        except LeaseLost:
            assert lost

    @rule(seconds=st.sampled_from([1, 5, 31]))
    def wait(self, seconds: int) -> None:
        self.model.now = self.clock.advance(seconds)

    @rule()
    def reap(self) -> None:
        assert self._reaped() == self.model.reap()

    def _reaped(self) -> int:
        from penstock.log import reap

        with self.log.store.transaction() as tx:
            return reap.reap_group(tx, self.stream, GROUP)

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.model.paused = paused
        (self.log.pause if paused else self.log.resume)(self.stream, GROUP)

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), rarely=st.integers(0, 3))
    def rewind(self, data: st.DataObject, rarely: int) -> None:
        if rarely:
            return
        target = data.draw(st.integers(0, len(self.ids)))
        stored = 0 if target == 0 else self._stored(target)
        self.model.rewind(target)
        self.log.rewind(self.stream, GROUP, to=stored)

    @precondition(lambda self: self.model.exclusive and self.model.lanes < 16)
    @rule()
    def double(self) -> None:
        busy = False
        try:
            self.model.double_lanes()
        except InFlight:
            busy = True
        try:
            assert self.log.double_lanes(self.stream, GROUP) == self.model.lanes
            assert not busy
        except InFlight:
            assert busy

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), what=st.sampled_from(["redrive", "replay", "kill", "reschedule", "skip"]))
    def operate(self, data: st.DataObject, what: str) -> None:
        offset = data.draw(st.integers(1, len(self.ids)))
        wanted = self.model.delivery(self.model.events[offset - 1])
        one = [self._id(offset)]
        refused: type[Exception] | None = None
        try:
            self._on_model(what, offset)
        except (IllegalTransition, InFlight) as error:
            refused = type(error)
        if what in ("redrive", "replay"):
            moved = getattr(self.log, what)(self.stream, GROUP, event_ids=one)
            assert moved.count == (refused is None)
            return
        try:
            if what == "kill":
                self.log.kill(self.stream, GROUP, event_ids=one)
            elif what == "reschedule":
                due = self.clock.now() + timedelta(seconds=7)
                self.log.reschedule(self.stream, GROUP, event_ids=one, available_at=due)
            else:
                self.log.skip(self.stream, GROUP, self.model.events[offset - 1].key or "a")
            assert refused is None
        except penstock.UnknownEvent:
            assert wanted is None
        except (IllegalTransition, InFlight) as error:
            assert type(error) is refused

    def _on_model(self, what: str, offset: int) -> None:
        match what:
            case "redrive":
                self.model.restart(offset, Reason.REDRIVEN)
            case "replay":
                self.model.restart(offset, Reason.REPLAYED)
            case "kill":
                self.model.kill(offset)
            case "reschedule":
                self.model.reschedule(offset, self.clock.now() + timedelta(seconds=7))
            case _:
                self.model.skip(self.model.events[offset - 1].key or "a")

    @invariant()
    def the_view_agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        shown = {d.event_id: d for d in self.log.deliveries(self.stream, GROUP, limit=10_000)}
        counts: dict[str, int] = {}
        for event in self.model.events:
            expected = self.model.delivery(event)
            found = shown.pop(self._id(event.offset), None)
            assert (expected is None) == (found is None), (event, expected, found)
            if expected is None or found is None:
                continue
            assert (found.state, found.attempts, found.failures) == (
                expected.state,
                expected.attempts,
                expected.failures,
            ), event
            counts[found.state] = counts.get(found.state, 0) + 1
            assert (found.state == "CLAIMED") == (found.claimed_at is not None) == (found.claimed_by is not None)
            assert (found.state == "PUBLISHED") == (found.published_at is not None)
        assert not shown, "the view shows deliveries that do not exist"
        (stats,) = [one for one in self.log.stats().groups if one.stream == self.stream]
        assert {
            "PENDING": stats.pending,
            "CLAIMED": stats.claimed,
            "PUBLISHED": stats.published,
            "DEAD": stats.dead,
        } == {state: counts.get(state, 0) for state in ("PENDING", "CLAIMED", "PUBLISHED", "DEAD")}

    def teardown(self) -> None:
        if hasattr(self, "model"):
            for _, lease in self.pairs:
                try:
                    lease.release()
                except LeaseLost:
                    continue
            self._reaped()
            self.log.delete_group(self.stream, GROUP)


def check_store_against_model(
    given_log: penstock.Log, given_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, *, examples: int, steps: int
) -> None:
    """Run random commands on the store and on the model."""
    monkeypatch.setattr(crash_guard, "SOLO_DEATHS", 10**6)  # the model has no crash-loop guard

    class Machine(StoreAgainstModel):
        log = given_log
        clock = given_clock

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
