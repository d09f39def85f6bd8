"""Jobs on an engine whose connections are cut: it waits, and every job's effects happen once."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

import penstock
from tests.support.children import jobs as functions
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.done_table import create_done_table, done_offsets
from tests.support.job_engine import job_engine, job_type
from tests.support.local_engine import PATIENCE_SECONDS
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until


@pytest.mark.shows("K42", "K15")
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_connection_cut_at_any_statement_loses_and_repeats_no_job(
    postgres: PostgresServer, postgres_log: penstock.Log, postgres_log_url: str, how: Cut
) -> None:
    create_done_table(postgres_log_url)
    jobs = 12
    with CuttingProxy(postgres.port) as proxy, penstock.open(proxy.url(postgres_log_url)) as log:
        with job_engine(log, job_type(functions.answer, lease_seconds=1, heartbeat_seconds=0.3)) as engine:
            for n in range(1, jobs + 1):
                proxy.cut_at(n, how)
                postgres_log.submit("a", {"n": n})
                assert proxy.cut.wait(PATIENCE_SECONDS)
                wait_until(lambda n=n: len(postgres_log.jobs(state="PUBLISHED")) == n, f"job {n} to be done")
            assert not engine.wait(0), "the engine ended by itself"
        assert len(proxy.cuts) == jobs
    assert sorted(done_offsets(postgres_log_url)) == [*range(1, jobs + 1)]
    assert Counter(one.json()["n"] for one in postgres_log.read("done")) == {n: 1 for n in range(1, jobs + 1)}
    assert {one.result["twice"] // 2 for one in postgres_log.jobs()} == {*range(1, jobs + 1)}
    assert {one.failures for one in postgres_log.jobs()} <= {0, 1}, "at most a lease that nobody knew of has expired"


@pytest.mark.shows("K42")
def test_a_claim_of_a_job_raises_penstocks_own_errors(postgres_log_url: str) -> None:
    name = postgres_log_url.rpartition("/")[2]
    with penstock.open(postgres_log_url, patience_seconds=0.2) as log:
        log.submit("a", {})
        job = log.claim_job("w", ["a"])
        assert job is not None
        with psycopg.connect(postgres_log_url.replace(name, "postgres"), autocommit=True) as owner:
            owner.execute(f"alter database {name} allow_connections false")
            owner.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", (name,))
            for verb in (
                lambda: log.submit("a", {}),
                lambda: log.claim_job("w", ["a"]),
                lambda: log.heartbeat(job.id, "w"),
                lambda: log.complete_job(job.id, "w"),
                lambda: log.job(job.id),
            ):
                with pytest.raises(penstock.StoreUnavailable):
                    verb()
            owner.execute(f"alter database {name} allow_connections true")
        assert log.heartbeat(job.id, "w") == "extended"
        log.complete_job(job.id, "w", result=1)
        assert [(one.status, one.attempts, one.result) for one in log.jobs()] == [("PUBLISHED", 1, 1)]
