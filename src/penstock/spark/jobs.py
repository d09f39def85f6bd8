"""The Spark jobs of a run: each has a description in Spark's UI, and can be cancelled by itself."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_WAITING_SECONDS = 2.0  # Spark tells a moment late that a task has begun


class SparkJobs:
    """Spark jobs at work, each in a job group of its own."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._waiting: dict[str, float] = {}  # since when

    @contextmanager
    def job(self, description: str) -> Iterator[None]:
        """What this thread runs on Spark in this block is one job."""
        name = f"penstock-{uuid.uuid4().hex}"
        self._context.setJobGroup(name, description, interruptOnCancel=True)
        with self._lock:
            self._running.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(name)

    def cancel_waiting(self) -> None:
        """Cancel jobs that have had no task at work for some seconds: without an executor they never would."""
        now = time.monotonic()
        with suppress(Exception):  # Spark may have ended
            tracker = self._context.statusTracker()
            waiting = [one for one in self._names() if not _at_work(tracker, one)]
            self._waiting = {one: self._waiting.get(one, now) for one in waiting}
            for name, since in self._waiting.items():
                if now - since > _WAITING_SECONDS:
                    self._context.cancelJobGroup(name)

    def cancel_all(self) -> None:
        """Cancel all jobs, and kill their tasks."""
        with suppress(Exception):  # Spark may have ended
            for name in self._names():
                self._context.cancelJobGroup(name)

    def _names(self) -> list[str]:
        with self._lock:
            return sorted(self._running)


def _at_work(tracker: Any, name: str) -> bool:
    jobs = [tracker.getJobInfo(one) for one in tracker.getJobIdsForGroup(name)]
    stages = [tracker.getStageInfo(stage) for one in jobs if one is not None for stage in one.stageIds]
    return any(one is not None and one.numActiveTasks > 0 for one in stages)
