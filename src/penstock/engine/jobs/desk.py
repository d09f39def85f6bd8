"""The leases that a job type's worker holds: which job is where, what has ended, and their settles."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from penstock.core import codec, fingerprint
from penstock.core.job import CANCELLED
from penstock.core.lease import Failure, Settled, Settlement
from penstock.core.log_fields import about
from penstock.core.observe import EventsFailed, LeaseEnded, LeaseGone, Observers, Timing
from penstock.declare.job import JobType
from penstock.engine.jobs.batch import Batch
from penstock.engine.jobs.messages import Outcomes
from penstock.errors import AWAY, LeaseLost
from penstock.log.lease import Lease

JobKey = tuple[int, int]  # the batch in which a job was given to the process, and its place in it
logger = logging.getLogger("penstock")
_SETTLE_SECONDS = 1.0  # after a job has ended, whatever its neighbours do


class Desk:
    """Batches by number. A job that was kept is in another batch than the one in which its process knows it."""

    def __init__(
        self,
        job: JobType,
        observers: Observers,
        patiently: Callable[[Callable[[], Settled]], Settled | None],
    ) -> None:
        self._job = job
        self._observers = observers
        self._patiently = patiently
        self._number = 0
        self._moved: dict[JobKey, JobKey] = {}
        self.batches: dict[int, Batch] = {}
        self.cancelled: set[JobKey] = set()
        self.progress: dict[int, tuple[float | None, str | None]] = {}  # by offset

    @property
    def left(self) -> int:
        """How many jobs have not ended."""
        return sum(batch.left for batch in self.batches.values())

    def open(self, lease: Lease) -> int:
        """Take a lease; returns the number of its batch."""
        self._number += 1
        self.batches[self._number] = Batch(lease)
        return self._number

    def find(self, job: JobKey) -> tuple[Batch | None, int]:
        """Return where a job is now: its batch, None if it is held no more, and its place."""
        number, place = self._moved.get(job, job)
        return self.batches.get(number), place

    def key_of(self, number: int, place: int) -> JobKey:
        """Return how the process knows a job."""
        return next((job for job, now in self._moved.items() if now == (number, place)), (number, place))

    def held(self) -> dict[int, int]:
        """Return the tokens of all leases by their ids."""
        return {batch.lease.id: batch.lease.token for batch in self.batches.values()}

    # --- what ended ----------------------------------------------------------------------------------------------

    def note(self, said: Outcomes) -> None:
        """Take a report of the process."""
        for job, progress in said.progress.items():
            batch, place = self.find(job)
            if batch is not None:
                self.progress[batch.lease.events.offsets[place]] = progress
        for number, places in said.ended.items():
            batch = self.batches.get(number)
            if batch is not None and said.plain and not self._moved and not self.cancelled:
                batch.end_all(places)
            else:
                for place in places:
                    self._note_one((number, place), said)

    def _note_one(self, job: JobKey, said: Outcomes) -> None:
        batch, place = self.find(job)
        self._moved.pop(job, None)
        if batch is not None:
            self._end(batch, place, job, said)
        self.cancelled.discard(job)

    def _end(self, batch: Batch, place: int, job: JobKey, said: Outcomes) -> None:
        if job in said.results:
            batch.results[place] = said.results[job]
        if job in said.effects:
            batch.effects[place] = said.effects[job]
        if (why := said.unavailable.get(job)) is not None:
            batch.back.add(place)
            batch.unavailable = why
        if (why := said.dead.get(job) or said.failed.get(job)) is not None:
            if job in self.cancelled:
                batch.dead[place] = was_cancelled(why)
            elif job in said.dead:
                batch.dead[place] = why
            elif self._job.policy.on_error == "expire":
                self._let_expire(batch)
                return
            else:
                batch.failed[place] = why
        batch.end(place)

    def _let_expire(self, batch: Batch) -> None:
        """Report nothing, and beat no more: its lease, which it has alone, runs out."""
        self.batches = {number: one for number, one in self.batches.items() if one is not batch}
        text = f"lease {batch.lease.id} is left to expire: its job failed"
        self._observers.emit(LeaseGone(self._job.name, text))

    def blame(self, running: list[JobKey], failure: Failure) -> None:
        """Blame the job that was running when its process died, or suspect all that were."""
        for job in running:
            batch, place = self.find(job)
            if batch is None:
                continue
            if job in self.cancelled or failure.code == CANCELLED:
                batch.dead[place] = was_cancelled(failure)
            elif len(running) == 1:
                batch.failed[place] = failure
            else:
                batch.suspects[place] = failure
            batch.end(place)

    def end_cancelled(self, job: JobKey) -> None:
        """Give up a job that has not begun, if it was cancelled."""
        batch, place = self.find(job)
        if batch is not None and job in self.cancelled:
            self.cancelled.discard(job)
            batch.dead[place] = was_cancelled()
            batch.end(place)

    def forget_moves(self) -> None:
        """Nothing runs any more."""
        self._moved.clear()
        self.cancelled.clear()

    # --- settle --------------------------------------------------------------------------------------------------

    def finished(self) -> list[int]:
        """Return the batches that can be settled: all of their jobs have ended, or their lease is lost.

        A lost one whose jobs were asked back waits for the answer, which says what still runs and should end.
        """
        return [
            number
            for number, batch in self.batches.items()
            if batch.left == 0 or (batch.lost and (len(batch.lease) == 1 or not batch.recalled))
        ]

    def overdue(self) -> Iterator[int]:
        """Yield the batches in which ended jobs have waited too long for their neighbours."""
        now = time.monotonic()
        for number, batch in self.batches.items():
            waits = batch.waits_since is not None and now - batch.waits_since > _SETTLE_SECONDS
            if len(batch.lease) > 1 and batch.left and (waits or batch.unavailable is not None):
                yield number

    def finish(self, number: int, running: Iterable[int] = ()) -> Settled | None:
        """Settle a batch; what runs goes on in leases of its own. None if its lease is lost."""
        batch = self.batches.pop(number)
        kept = sorted(running)
        began, handled = time.monotonic(), time.time() - batch.began_at
        settled = None if batch.lost else self._patiently(lambda: self._report(batch, kept))
        if settled is None:
            return None
        took = batch.claim_seconds
        timing = Timing(batch.began_at - took, took, handled, time.monotonic() - began)
        name, lease = self._job.name, batch.lease
        self._observers.emit(LeaseEnded(name, lease.id, settled, lease.events, timing))
        if batch.failed or batch.dead:
            self._observers.emit(EventsFailed(name, lease.events, {**batch.failed, **batch.dead}, lease.id))
        if len(settled.kept) != len(kept):
            return None  # it was given back as a whole: what runs is somebody else's now
        for place, lease in zip(kept, settled.kept, strict=True):
            new = self.open(lease)
            self.batches[new].recalled = True
            self._moved[number, place] = (new, 0)
        return settled

    def _report(self, batch: Batch, running: list[int]) -> Settled:
        try:
            return batch.settle(running)
        except (LeaseLost, *AWAY):
            raise
        except Exception as error:
            logger.warning(
                "%s: the settle failed: %s: %s",
                *(self._job.name, type(error).__name__, error),
                extra=about("settle_failed", self._job.name, lease=batch.lease.id, code=codec.error_code(error)),
            )
            if len(batch.lease) > 1:
                return batch.lease.release()
            failure = fingerprint.of_text(codec.error_code(error), f"settle_failed: {codec.error_text(error)}")
            upto, _ = batch.lease.split(set())
            return batch.lease.apply(Settlement(failed={batch.lease.events.offsets[0]: failure}, upto=upto))


def was_cancelled(why: Failure | None = None) -> Failure:
    """Make the failure of a job that was cancelled."""
    text = "cancelled" if why is None or why.code == CANCELLED else f"cancelled: {why.message}"
    return fingerprint.of_text(CANCELLED, text)
