"""Spark jobs that fail at once: Spark by itself would retry a poisonous task several times first."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from penstock.core.lease import Failure
from penstock.errors import SparkLost
from penstock.spark.causes import AWAY, failure_of
from penstock.spark.failing_rows import Rows, rows_of
from penstock.spark.pipelines.read_once import ONCE
from penstock.spark.session import has_ended

T = TypeVar("T")
_LOOK = 0.05  # seconds between two looks at the tasks of a Spark job
_TASKS = 10_000  # of a stage, to search for those that failed
_NEWS_SECONDS = 30.0  # for Spark's own book-keeping to catch up with a Spark job that has ended
_LOST = ("ExecutorLostFailure", "FetchFailed")  # tasks that did not fail by themselves
_TIMED_OUT = "timed_out"
_POOL = "spark.scheduler.pool"
_numbers = itertools.count(1)


class Cause(NamedTuple):
    """Why a task failed, and the rows of its piece that were at work then, if that is known."""

    failure: Failure
    rows: Rows | None = None


class SparkJobFailed(Exception):
    """A Spark job failed. Nobody is to blame if its executors were lost: it is to be run again."""

    def __init__(self, failure: Failure, partition: int | None = None, *, lost: bool = False) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.partition = partition  # that failed, if its stage has one task per piece
        self.lost = lost

    @property
    def away(self) -> bool:
        """Whether the database or the sink is unreachable: no event is to blame."""
        return self.failure.code in AWAY


class SparkJobs:
    """The Spark jobs of one pipeline. Any number of threads run them side by side."""

    def __init__(self, spark: Any, name: str, timeout_seconds: float | None = None) -> None:
        self._context = spark.sparkContext
        self._name = name
        self._timeout = timeout_seconds
        self._pool: str | None = None  # the scheduling pool
        self._groups: set[str] = set()

    def use_pool(self) -> None:
        """Run all Spark jobs in the scheduling pool of the thread that calls this."""
        self._pool = self._context.getLocalProperty(_POOL)

    def run(self, work: Callable[[Watch], T], *, pieces: int, tolerated: int = 0) -> T:
        """Run the Spark jobs that `work` starts; `SparkJobFailed` when more tasks than tolerated have failed.

        `pieces` is the number of partitions of its input. Tasks of jobs that read once may fail: `Watch.causes` tells.
        """
        group = f"penstock {self._name} {next(_numbers)}"
        self._context.setLocalProperty(_POOL, self._pool)
        self._context.setJobGroup(group, f"{self._name}: {pieces} pieces", interruptOnCancel=True)
        self._groups.add(group)
        watch = Watch(self._context, group, pieces, tolerated, self._timeout)
        try:
            with watch:
                done = work(watch)
            if watch.ran_a_stage_again():
                again = Failure("executor_lost", "executor_lost: a stage ran again; its rows may not fit together.")
                raise SparkJobFailed(again, lost=True)
            return done
        except SparkJobFailed:
            raise
        except Exception as error:
            if has_ended(self._context):
                raise SparkLost(f"Spark has stopped: {failure_of(error).message}.") from error
            raise SparkJobFailed(watch.failure or failure_of(error), watch.partition) from error
        finally:
            self._groups.discard(group)

    def cancel(self) -> None:
        """Cancel what is running; from any thread."""
        for group in list(self._groups):
            with suppress(Exception):  # it may have ended, and Spark with it
                self._context.cancelJobGroup(group)


class Watch:
    """A thread that watches a Spark job group: ends hanging tasks, records why a task failed, and cancels the rest."""

    def __init__(self, context: Any, group: str, pieces: int, tolerated: int, timeout: float | None) -> None:
        self.failure: Failure | None = None
        self.partition: int | None = None
        self._context = context
        self._group = group
        self._pieces = pieces
        self._tolerated = tolerated
        self._timeout = timeout
        self._executors: set[str] = set()  # when it begins
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)

    def __enter__(self) -> None:
        self._executors = self._active()
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def causes(self) -> dict[int, Cause]:
        """Return why tasks of jobs that read once failed, by partition; after the Spark job has ended."""
        self._catch_up()
        found: dict[int, Cause] = {}
        for once, stage in self._stages():
            for task in self._tasks(stage) if once else ():
                cause = self._cause(task)
                if cause is not None:
                    found.setdefault(int(task.index()), cause)
        return found

    def _cause(self, task: Any) -> Cause | None:
        """Why a task failed; None if it did not, or if it was lost to a twin."""
        if not task.errorMessage().isDefined():
            return None
        text = str(task.errorMessage().get())
        if str(task.status()) != "KILLED":
            return Cause(failure_of(text), rows_of(text))
        timed = self._timeout is not None and text.startswith(_TIMED_OUT)
        return Cause(timed_out(self._timeout or 0)) if timed else None

    def ran_a_stage_again(self) -> bool:
        """Whether a shuffle was computed again, after some of its readers may have read the first one."""
        self._catch_up()
        stages = [stage for _, stage in self._stages()]
        if len(stages) < 2:
            return False
        if any(stage.currentAttemptId > 0 for stage in stages):
            return True
        gone = self._executors - self._active()  # with what they had shuffled
        return bool(gone) and any(str(task.executorId()) in gone for stage in stages for task in self._tasks(stage))

    def _catch_up(self) -> None:
        self._context._jsc.sc().listenerBus().waitUntilEmpty(int(_NEWS_SECONDS * 1000))

    def _run(self) -> None:
        while not self._ended.wait(_LOOK):
            with suppress(Exception):  # Spark forgets stages, or it has stopped: `run` reports that
                if self._look():
                    self._context.cancelJobGroup(self._group)
                    return

    def _look(self) -> bool:
        """Whether a stage has more failures than tolerated, and the cause was found, or a task hangs."""
        for once, stage in self._stages():
            if not once and stage.numFailedTasks > self._tolerated and self._find_cause(stage):
                return True
            if self._timeout is not None and stage.numActiveTasks and self._end_hanging(stage, once):
                return True
        return False

    def _find_cause(self, stage: Any) -> bool:
        for task in self._tasks(stage):
            text = str(task.errorMessage().get()) if task.errorMessage().isDefined() else ""
            if str(task.status()) == "FAILED" and not text.startswith(_LOST):
                self.failure = failure_of(text)
                self._point_at(task, stage)
                return True
        return False

    def _end_hanging(self, stage: Any, once: bool) -> bool:
        """End tasks that take too long; in jobs that read once, the others go on. Whether to cancel everything."""
        assert self._timeout is not None
        late = (time.time() - self._timeout) * 1000
        for task in self._tasks(stage):
            if str(task.status()) != "RUNNING" or task.launchTime().getTime() > late:
                continue
            self.failure = timed_out(self._timeout)
            self._point_at(task, stage)
            if not once:
                return True
            self._context._jsc.sc().killTaskAttempt(task.taskId(), True, self.failure.message)
        return False

    def _point_at(self, task: Any, stage: Any) -> None:
        self.partition = int(task.index()) if stage.numTasks == self._pieces else None

    def _stages(self) -> Iterator[tuple[bool, Any]]:
        """Yield all stages that have begun, and whether their job reads once."""
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            once = info is not None and self._store().job(job).jobTags().contains(ONCE)
            for number in info.stageIds if info is not None else ():
                stage = tracker.getStageInfo(number)
                if stage is not None:
                    yield once, stage

    def _tasks(self, stage: Any) -> Iterator[Any]:
        tasks = self._store().taskList(stage.stageId, stage.currentAttemptId, _TASKS)
        for place in range(tasks.size()):
            yield tasks.apply(place)

    def _active(self) -> set[str]:
        executors = self._store().executorList(True)
        return {str(executors.apply(place).id()) for place in range(executors.size())}

    def _store(self) -> Any:
        return self._context._jsc.sc().statusStore()


def timed_out(seconds: float) -> Failure:
    """Make the failure of an event whose task took too long."""
    return Failure(_TIMED_OUT, f"{_TIMED_OUT}: a task took longer than timeout_seconds ({seconds:g} s).")
