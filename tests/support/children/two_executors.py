"""Run an app on `local-cluster` and kill one executor; print who claimed before and after as one JSON line."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import penstock
from penstock.declare.load import load_object
from penstock.spark.handlers.engine import SparkEngine
from penstock.spark.session import make_session
from tests.support.waiting import wait_until


def executor(claimer: str) -> str:
    return claimer.split("/")[1]


def main(app: str, url: str) -> None:
    import psycopg

    spark = make_session("local-cluster[2,1,1024]", config={"spark.ui.enabled": "false"})
    log = penstock.open(url)
    subscriptions = load_object(app, penstock.App).chosen()
    engine = SparkEngine(log, spark, url, subscriptions, until_drained=True)
    with psycopg.connect(url, autocommit=True) as sql:

        def claimed(after: int = 0) -> list[str]:
            rows = sql.execute("select distinct claimed_by from penstock.leases where id > %s", (after,)).fetchall()
            return [row[0] for row in rows]

        engine.start()
        wait_until(lambda: len({executor(one) for one in claimed()}) == 2, seconds=120)
        before = claimed()
        _kill_executor_of(int(before[0].split("/")[2]))
        (last,) = sql.execute("select max(id) from penstock.leases").fetchone() or (0,)
        assert engine.wait(200), engine.snapshot()
        after = claimed(last)
    print(json.dumps({"before": sorted({executor(one) for one in before}), "after": sorted(after)}), flush=True)
    spark.stop()


def _kill_executor_of(python_worker: int) -> None:
    """Kill the JVM above a Python worker."""
    pid = python_worker
    while "java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:3])
