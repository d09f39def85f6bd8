"""Random histories of jobs against a small model: what may be claimed, by whom, and what becomes of it."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.true_stats import check_stats

TYPES = ("a", "b")
LEASE_SECONDS = 30
KEEP_FINISHED, KEEP_DEAD = 40, 90
STEPS = 60


@dataclass
class Known:
    """A job as the model knows it."""

    id: uuid.UUID
    type: str
    priority: int
    place: int  # in the order of submission
    most: int
    due: datetime
    dated: datetime
    status: str = "PENDING"
    attempts: int = 0
    failures: int = 0
    token: int = 0
    expires: datetime | None = None
    cancel: bool = False
    ended: datetime | None = None

    def fail(self, now: datetime, seconds: float) -> None:
        self.failures += 1
        self.status = "DEAD" if self.failures >= self.most else "PENDING"
        self.due, self.expires, self.ended = now + timedelta(seconds=seconds), None, now


class History:
    """One random history: every call is made on the log and on the model, and both must agree."""

    def __init__(self, log: penstock.Log, clock: VirtualClock, seed: int, *, retention: bool) -> None:
        self._log, self._clock, self._rng = log, clock, random.Random(seed)
        self._jobs: list[Known] = []
        self._stale: list[tuple[uuid.UUID, int]] = []
        self._gone = 0
        self._retention = retention
        kept = {"keep_finished": KEEP_FINISHED, "keep_dead": KEEP_DEAD} if retention else {}
        policy = penstock.Retry(base_seconds=4, factor=2, jitter=0)
        for one in TYPES:
            log.declare_job(one, retry=policy, lease_seconds=LEASE_SECONDS, **kept)  # type: ignore[arg-type]

    def run(self) -> None:
        acts = [self._submit] * 3 + [self._claim] * 4 + [self._complete] * 2 + [self._fail] * 2
        acts += [self._beat, self._cancel, self._use_stale, self._wait, self._wait, self._redrive]
        acts += [self._remove] * (3 if self._retention else 0)
        for _ in range(STEPS):
            self._rng.choice(acts)()
            self._expire()
            self._compare()
        if self._retention:
            self._drain()

    # --- calls -----------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        rng, now = self._rng, self._clock.now()
        later = rng.choice([None, None, now + timedelta(seconds=20)])
        most = rng.choice([None, 1, 2])
        kind, priority = rng.choice(TYPES), rng.choice([0, 0, 5])
        job = self._log.submit(kind, {}, priority=priority, max_attempts=most, available_at=later)
        self._jobs.append(
            Known(job.id, kind, priority, self._gone + len(self._jobs), most or 3, later or now, later or now)
        )

    def _claim(self) -> None:
        types = self._rng.choice([("a",), ("b",), TYPES])
        limit = self._rng.choice([1, 1, 3, 8])
        wanted = self._due(types)[:limit]
        found = self._log.claim_jobs("w", types, limit=limit)
        assert [one.id for one in found] == [one.id for one in wanted]
        for job, known in zip(found, wanted, strict=True):
            assert job.token is not None and job.token > known.token, "tokens grow"
            known.status, known.attempts, known.token = "CLAIMED", known.attempts + 1, job.token
            known.expires, known.cancel = self._clock.now() + timedelta(seconds=LEASE_SECONDS), False
            assert job.attempts == known.attempts

    def _due(self, types: tuple[str, ...]) -> list[Known]:
        """By stream: that with the highest priority and the oldest due job first; in each, the oldest first."""
        due = [
            one for one in self._jobs if one.status == "PENDING" and one.due <= self._clock.now() and one.type in types
        ]
        streams: dict[tuple[int, str], list[Known]] = {}
        for one in due:
            streams.setdefault((one.priority, one.type), []).append(one)
        ranked = sorted(streams.items(), key=lambda pair: (-pair[0][0], pair[1][0].place))
        return [one for _, some in ranked for one in some]

    def _claimed(self) -> Known | None:
        held = [one for one in self._jobs if one.status == "CLAIMED"]
        return self._rng.choice(held) if held else None

    def _beat(self) -> None:
        if (one := self._claimed()) is not None:
            answer = self._log.heartbeat(one.id, "w", token=one.token)
            assert answer == ("cancel" if one.cancel else "extended")
            one.expires = self._clock.now() + timedelta(seconds=LEASE_SECONDS)

    def _complete(self) -> None:
        if (one := self._claimed()) is not None:
            for _ in range(self._rng.choice([1, 2])):  # again is harmless
                self._log.complete_job(one.id, "w", token=one.token)
            one.status, one.expires, one.ended = "PUBLISHED", None, self._clock.now()

    def _fail(self) -> None:
        if (one := self._claimed()) is not None:
            seconds = self._rng.choice([None, 0.0, 7.0])
            self._log.fail_job(one.id, "w", token=one.token, error="no", retry_in=seconds)
            self._stale.append((one.id, one.token))
            one.fail(self._clock.now(), 4 * 2**one.failures if seconds is None else seconds)

    def _cancel(self) -> None:
        if not self._jobs:
            return
        one = self._rng.choice(self._jobs)
        self._log.cancel_job(one.id)
        if one.status == "PENDING":
            one.status, one.attempts = "DEAD", one.attempts + 1  # an operator claims before it buries
            one.ended = self._clock.now()
        one.cancel = one.status == "CLAIMED"

    def _redrive(self) -> None:
        dead = [one for one in self._jobs if one.status == "DEAD"]
        if dead:
            one = self._rng.choice(dead)
            self._log.redrive(self._log.job(one.id).stream, "workers", event_ids=[one.id])
            one.status, one.attempts, one.failures = "PENDING", 0, 0
            one.due = max(one.dated, self._clock.now())

    def _use_stale(self) -> None:
        """A token of a claim that is over changes nothing."""
        for job, token in self._stale[-3:]:
            if any(one.id == job and one.token == token and one.status == "CLAIMED" for one in self._jobs):
                continue
            for call in (self._log.heartbeat, self._log.complete_job):
                with pytest.raises((penstock.LeaseLost, penstock.SettleMismatch, penstock.UnknownJob)):
                    call(job, "w", token=token)

    def _wait(self) -> None:
        self._clock.advance(self._rng.choice([1, 5, 29, 31]))

    def _remove(self) -> None:
        """Nothing leaves before its time; dead jobs leave in time, finished ones when all left of them may."""
        while self._log.remove_finished_jobs().more:
            pass
        left, now = {job.id for job in self._log.jobs(limit=1000)}, self._clock.now()
        over = {
            "PUBLISHED": now - timedelta(seconds=KEEP_FINISHED),
            "DEAD": now - timedelta(seconds=KEEP_DEAD),
        }
        for one in self._jobs:
            may_leave = one.status in over and one.ended is not None and one.ended <= over[one.status]
            assert may_leave or one.id in left, f"removed too early: {one}"
            assert not (may_leave and one.status == "DEAD" and one.id in left), f"a dead job stayed: {one}"
        self._gone += len(self._jobs) - len(left)
        self._jobs = [one for one in self._jobs if one.id in left]
        check_stats(self._log, now)

    def _drain(self) -> None:
        """When everything is finished, everything leaves."""
        while self._jobs:
            self._claim()
            self._complete()
            self._wait()
            self._expire()
            self._remove()
        assert self._gone

    # --- both sides ------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        self._log.reap()
        now = self._clock.now()
        for one in self._jobs:
            if one.status == "CLAIMED" and one.expires is not None and one.expires <= now:
                self._stale.append((one.id, one.token))
                one.fail(now, 0)
            if one.status == "PENDING" and one.cancel:  # it came back before its worker was told
                one.status, one.attempts, one.ended = "DEAD", one.attempts + 1, now
            one.cancel = one.cancel and one.status == "CLAIMED"

    def _compare(self) -> None:
        shown = {job.id: (str(job.status), job.attempts, job.failures) for job in self._log.jobs(limit=1000)}
        assert shown == {one.id: (one.status, one.attempts, one.failures) for one in self._jobs}


@pytest.mark.shows("J02", "J03", "J04", "J06", "K15", "K16")
@pytest.mark.parametrize("seed", range(2))
def test_random_histories_agree_with_the_model(clocked: penstock.Log, clock: VirtualClock, seed: int) -> None:
    History(clocked, clock, seed, retention=False).run()


@pytest.mark.shows("J06")
@pytest.mark.parametrize("seed", [1])
def test_random_histories_with_retention_agree_with_the_model(
    clocked: penstock.Log, clock: VirtualClock, seed: int
) -> None:
    History(clocked, clock, seed, retention=True).run()
