"""On a standalone cluster: executors come and are used, and every kind of process can be killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.busy_cluster import SECONDS, BusyCluster
from tests.support.postgres_server import PostgresServer
from tests.support.spark_cluster import SparkCluster


@pytest.mark.shows("S03", "S14", "S21")
@pytest.mark.timeout(300)
def test_everything_can_be_killed_and_what_comes_is_used(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    """A worker with its executor, an executor, PostgreSQL and the driver are killed; then the app runs to the end."""
    with PostgresServer() as server:
        busy = BusyCluster(spark_cluster, tmp_path, server.create_database())
        with busy.run():
            busy.wait_at_work(lambda: len(busy.executors()) == 2, "a waiting slice to bring a second executor")
            known = busy.executors()
            spark_cluster.kill_worker(spark_cluster.workers[0])
            busy.wait_for_progress()
            spark_cluster.add_worker()
            busy.wait_at_work(lambda: bool(busy.executors() - known), "the executor of the new worker to claim")
            os.kill(spark_cluster.executors()[0], signal.SIGKILL)
            busy.wait_for_progress()
            server.kill()
            server.start()
            busy.wait_for_progress()
        with busy.run("--until-drained") as running:  # the driver was killed at the end of the block
            assert running.process.wait(SECONDS) == 0, running.err
        busy.check_once()
