"""What one claim costs: with a long backlog, with many types, with thousands of jobs in work."""

from __future__ import annotations

import statistics
import time

import psycopg

import penstock
from benchmarks.jobs.workers import loads
from benchmarks.measuring import Figure
from tests.support.postgres_server import PostgresServer

FEW, MANY = 1_000, 1_000_000
TYPES, OPEN = 200, 5_000
TIMES = 300


def run(server: PostgresServer) -> list[Figure]:
    with penstock.open(server.create_database()) as small, penstock.open(server.create_database()) as large:
        _submit(small, "order", FEW)
        _submit(large, "order", MANY)
        few, many = claims((small, ["order"]), (large, ["order"]))
    names = [f"type-{n}" for n in range(TYPES)]
    with penstock.open(server.create_database()) as log:
        for name in names:
            _submit(log, name, 2 * TIMES)
        one, all_types = claims((log, names[:1]), (log, names))
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        for name in ("alone", "crowded"):
            _submit(log, name, OPEN + 2 * TIMES)
        for _ in range(OPEN // 100):
            log.claim_jobs("others", types=["crowded"], lease_seconds=3600, limit=100)
        row = connection.execute("select count(*) from penstock.leases where outcome is null").fetchone()
        assert row is not None and row[0] == OPEN
        alone, crowded = claims((log, ["alone"]), (log, ["crowded"]))
    return [
        _figure(f"claim of one job: {MANY:,} jobs waiting vs {FEW:,}", many, few, 1.3),
        _figure(f"claim of one job: of {TYPES} types vs of one", all_types, one, 4),
        _figure(f"claim of one job: {OPEN:,} single jobs in work vs none", crowded, alone, 2),
    ]


def _submit(log: penstock.Log, name: str, jobs: int) -> None:
    for numbers in loads(jobs):
        log.submit_many([{"type": name, "payload": {"id": n}} for n in numbers])


def claims(*kinds: tuple[penstock.Log, list[str]]) -> list[float]:
    """The median time of a claim of each kind, by turns; each job is completed."""
    taken: list[list[float]] = [[] for _ in kinds]
    for _ in range(TIMES):
        for (log, types), seconds in zip(kinds, taken, strict=True):
            begin = time.perf_counter()
            job = log.claim_job("bench", types=types)
            seconds.append(time.perf_counter() - begin)
            assert job is not None
            log.complete_job(job.id, "bench", token=job.token)
    return [statistics.median(one) for one in taken]


def _figure(what: str, value: float, base: float, target: float) -> Figure:
    detail = f"{value * 1e3:.2f} ms against {base * 1e3:.2f} ms"
    return Figure(what, value / base, target, at_least=False, detail=detail)
