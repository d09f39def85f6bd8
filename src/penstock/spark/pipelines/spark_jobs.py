"""Spark jobs that fail at once: Spark by itself would retry a poisonous task several times first."""

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
_LOOK = 0.05  # seconds between two looks at the tasks of a Spark job
_TASKS = 10_000  # of a stage, to search for the one that failed
_numbers = itertools.count(1)


class SparkJobFailed(Exception):
    """A Spark job failed."""

    def __init__(self, failure: Failure, partition: int | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.partition = partition  # that failed, if its stage has one task per piece

    @property
    def away(self) -> bool:
        """Whether the database or the sink is unreachable: no event is to blame."""
        return self.failure.code in AWAY


class SparkJobs:
    """The Spark jobs of one pipeline, run one after the other."""

    def __init__(self, spark: Any, name: str) -> None:
        self._context = spark.sparkContext
        self._name = name
        self._group: str | None = None

    def run(self, work: Callable[[], T], *, pieces: int, tolerated: int = 0) -> T:
        """Run the Spark jobs that `work` starts; `SparkJobFailed` when more tasks than tolerated have failed.

        `pieces` is the number of partitions of its input.
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
                raise SparkLost(f"Spark has stopped: {failure_of(error).message}.") from error
            raise SparkJobFailed(lookout.failure or failure_of(error), lookout.partition) from error
        finally:
            self._group = None

    def cancel(self) -> None:
        """Cancel what is running; from any thread."""
        group = self._group
        if group is not None:
            with suppress(Exception):  # it may have ended, and Spark with it
                self._context.cancelJobGroup(group)


class _Lookout:
    """A thread that watches a Spark job group: records why a task failed, and cancels the rest."""

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
        with suppress(Exception):  # Spark has stopped: `run` reports it
            while not self._ended.wait(_LOOK):
                if self._look():
                    self._context.cancelJobGroup(self._group)
                    return

    def _look(self) -> bool:
        """Whether a stage has more failures than tolerated, and the cause was found."""
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                found = tracker.getStageInfo(stage)
                if found is not None and found.numFailedTasks > self._tolerated and self._find_cause(found):
                    return True
        return False

    def _find_cause(self, stage: Any) -> bool:
        tasks = self._context._jsc.sc().statusStore().taskList(stage.stageId, stage.currentAttemptId, _TASKS)
        for place in range(tasks.size()):
            task = tasks.apply(place)
            if task.errorMessage().isDefined():
                self.failure = failure_of(task.errorMessage().get())
                self.partition = int(task.index()) if stage.numTasks == self._pieces else None
                return True
        return False
