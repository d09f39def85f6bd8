"""Run a pipeline on two executors with a function that answers differently each time, and kill one of them.

`python -m tests.support.children.lost_executor URL PLACE PLAN`: with the plan `straight` an executor dies while its
task runs, with `shuffle` after a task behind the shuffle has ended, so that the shuffle is computed again.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import penstock
from penstock import sinks
from tests.support.declarations import pipeline
from tests.support.log_steps import count_by_state
from tests.support.spark_pipeline import running_pipeline, select_offset_and_n
from tests.support.waiting import wait_until

EVENTS = 400


def function_of(place: Path, plan: str) -> Any:
    shape = "offset bigint, n bigint, _error string"

    def noted(what):  # no type hints: Spark would use them
        import os

        (place / f"{what}-{os.getpid()}").touch()

    def judged(batches):
        import random
        import time

        import pyarrow as pa

        for one in batches:
            errors = [random.choice(["bad luck", None]) for _ in range(len(one))]
            yield one.append_column("_error", pa.array(errors, pa.string()))
            noted("read")
            time.sleep(1)

    def reduced(batches):
        import time

        yield from batches
        noted("reduced")
        time.sleep(2)

    def fickle(batch: Any) -> Any:
        rows = select_offset_and_n(batch).mapInArrow(judged, shape)
        return rows if plan == "straight" else rows.repartition(6, "n").mapInArrow(reduced, shape)

    return fickle


def main(url: str, folder: str, plan: str) -> None:
    from penstock.spark.session import make_session

    place = Path(folder)
    spark = make_session("local-cluster[2,1,1024]", config={"spark.ui.enabled": "false"})
    with penstock.open(url) as log:
        one = pipeline(
            function_of(place, plan), sinks.Table("numbers"), retry=penstock.Retry(max_attempts=1), lease_seconds=30
        )
        with running_pipeline(log, spark, one):
            wait_until(lambda: any(place.glob("read-*" if plan == "straight" else "reduced-*")), seconds=200)
            _kill_executor_of(int(next(place.glob("read-*")).name.split("-")[1]))
            wait_until(
                lambda: sum(count_by_state(log).get(state, 0) for state in ("published", "dead")) == EVENTS, seconds=200
            )
    spark.stop()


def _kill_executor_of(python_worker: int) -> None:
    """Kill the JVM above a Python worker."""
    pid = python_worker
    while "java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:4])
