"""Jobs in several processes that are killed and frozen at random, for longer than CI has time for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.job_pool import JobPool, attack

JOBS, ROUNDS = 20_000, 12


@pytest.fixture
def pool(tmp_path: Path, log_url: str) -> Iterator[JobPool]:
    made = JobPool(tmp_path, log_url)
    yield made
    made.gate.close()


@pytest.mark.shows("K16", "X04", "J04")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_processes_killed_and_frozen_at_random_lose_and_double_nothing(pool: JobPool, seed: int) -> None:
    pool.submit("work", JOBS, seconds=0.002)
    with pool.run("--types", "work", "--until-drained", "--quiet", processes=4) as running:
        done = attack(pool, running, rounds=ROUNDS, every=JOBS // ROUNDS // 2, seed=seed)
        assert running.process.wait(600) == 0, running.err
    assert json.loads(running.out)["member_deaths"] == done.count("kill") > 0
    pool.check(JOBS)
