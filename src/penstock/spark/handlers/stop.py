"""Stop the slices of a run: through its row, which they read, or by Spark where that is not possible."""

from __future__ import annotations

import logging
import threading
import time

from penstock.errors import PenstockError
from penstock.log.log import Log
from penstock.spark.jobs import SparkJobs

logger = logging.getLogger("penstock")
_STEP_SECONDS = 0.2  # between two steps of a stop
_ORDER_SECONDS = 10.0  # for storing the order, before Spark ends the slices instead


def stop_slices(log: Log, run: int | None, jobs: SparkJobs, ended: threading.Event) -> None:
    """Return when the engine has ended; cancel slices that have no executor, and all if the database stays away."""
    deadline = time.monotonic() + _ORDER_SECONDS
    while run is not None and not ended.is_set():
        try:
            log.order_run(run, "stop")
            break
        except PenstockError as error:
            if time.monotonic() > deadline:
                logger.warning("the slices cannot be stopped gracefully: %s", error)
                jobs.cancel_all()
                break
        ended.wait(_STEP_SECONDS)
    while not ended.wait(_STEP_SECONDS):
        jobs.cancel_waiting()
