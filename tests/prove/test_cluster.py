"""A standalone cluster at length: repeated kills of drivers, workers, executors, Python workers and PostgreSQL."""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.busy_cluster import BusyCluster
from tests.support.postgres_server import PostgresServer
from tests.support.spark_cluster import SparkCluster

KILLS = 15
VICTIMS = ("driver", "worker", "executor", "python worker", "postgres")


@pytest.mark.shows("S03")
@pytest.mark.timeout(1800)
def test_random_kills_on_a_cluster_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    with PostgresServer() as server, SparkCluster(tmp_path / "cluster") as cluster, ExitStack() as runs:
        (tmp_path / "shop").mkdir()
        busy = BusyCluster(cluster, tmp_path / "shop", server.create_database())
        running = runs.enter_context(busy.run())
        for number in range(KILLS):
            busy.wait_for_progress(chance.randrange(10, 80))
            victim = VICTIMS[number % len(VICTIMS)]
            if victim == "driver":
                running.process.kill()
                running = runs.enter_context(busy.run())
            _kill(victim, busy, server, chance)
        running.process.kill()
        with busy.run("--until-drained") as last:
            assert last.process.wait(600) == 0, last.err
        busy.check_once()


def _kill(victim: str, busy: BusyCluster, server: PostgresServer, chance: random.Random) -> None:
    cluster = busy.cluster
    match victim:
        case "worker":
            cluster.kill_worker(chance.choice(cluster.workers))
            cluster.add_worker()
        case "executor":
            for pid in chance.sample(cluster.executors(), k=1) if cluster.executors() else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        case "python worker":
            with suppress(ProcessLookupError):
                os.kill(chance.choice(sorted(busy.claimers())), signal.SIGKILL)
        case "postgres":
            server.kill()
            server.start()
        case _:
            pass
