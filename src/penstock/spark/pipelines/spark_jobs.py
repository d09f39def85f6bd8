"""SparkJobs that end with their first failure: Spark would try a poisonous task again and again before it says so."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from penstock.core.lease import Failure
from penstock.errors import SparkLost
from penstock.spark.causes import AWAY, failure_of
from penstock.spark.session import has_ended

T = TypeVar("T")
_LOOK = 0.05  # seconds between two looks at the tasks of a job
_TASKS = 10_000  # of a stage that are looked through for the one that failed
_numbers = itertools.count(1)


class SparkJobFailed(Exception):
    """A job came to nothing."""

    def __init__(self, failure: Failure, partition: int | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.partition = partition  # where it happened, if the failed stage has one task for each piece

    @property
    def away(self) -> bool:
        """The database, or what the pipeline writes to, is away: no event is to blame."""
        return self.failure.code in AWAY


class SparkJobs:
    """Runs the jobs of one pipeline, one after the other."""

    def __init__(self, spark: Any, name: str) -> None:
        self._context = spark.sparkContext
        self._name = name
        self._group: str | None = None

    def run(self, work: Callable[[], T], *, pieces: int, tolerated: int = 0) -> T:
        """Run whatever jobs `work` starts; `SparkJobFailed` when more tasks than tolerated have failed.

        `pieces` is the number of partitions of what it reads.
        """
        group = f"penstock {self._name} {next(_numbers)}"
        self._context.setJobGroup(group, f"{self._name}: {pieces} pieces", interruptOnCancel=True)
        self._group = group
        lookout = _Lookout(self._context, group, pieces, tolerated)
        try:
            with lookout:
                return work()
        except Exception as error:
            if has_ended(self._context):
                raise SparkLost(f"Spark has ended: {failure_of(error).message}.") from error
            raise SparkJobFailed(lookout.failure or failure_of(error), lookout.partition) from error
        finally:
            self._group = None

    def cancel(self) -> None:
        """End what is running."""
        group = self._group
        if group is not None:
            with suppress(Exception):  # it may have ended by now, and Spark with it
                self._context.cancelJobGroup(group)


class _Lookout:
    """Watches the tasks of a job group; remembers why the first one failed, and cancels the rest."""

    def __init__(self, context: Any, group: str, pieces: int, tolerated: int) -> None:
        self.failure: Failure | None = None
        self.partition: int | None = None
        self._context = context
        self._group = group
        self._pieces = pieces
        self._tolerated = tolerated
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-lookout", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(Exception):  # Spark has ended: whoever runs the job says so
            while not self._ended.wait(_LOOK):
                if self._look():
                    self._context.cancelJobGroup(self._group)
                    return

    def _look(self) -> bool:
        """Whether a stage has more failures than tolerated, and its story is known."""
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                found = tracker.getStageInfo(stage)
                if found is not None and found.numFailedTasks > self._tolerated and self._story(found):
                    return True
        return False

    def _story(self, stage: Any) -> bool:
        tasks = self._context._jsc.sc().statusStore().taskList(stage.stageId, stage.currentAttemptId, _TASKS)
        for place in range(tasks.size()):
            task = tasks.apply(place)
            if task.errorMessage().isDefined():
                self.failure = failure_of(task.errorMessage().get())
                self.partition = int(task.index()) if stage.numTasks == self._pieces else None
                return True
        return False
