"""Jobs that wait: one at a time in many processes, many in one process, and a long one among short ones."""

from __future__ import annotations

import sys
from pathlib import Path

import penstock
from benchmarks.jobs.workers import app, drain, loads, orders
from benchmarks.measuring import Figure
from benchmarks.side_by_side import PGQUEUER, ask, peer, together
from tests.support.postgres_server import PostgresServer

PROCESSES = PLACES = 16
SHORT = 0.01
JOBS = 8_000
WAITING, WITH_LONG = 6_400, 25_600  # of 50 ms
LONG = 30


def run(server: PostgresServer, folder: Path) -> list[Figure]:
    loops, theirs = _loops(server), _pgqueuer(server, PROCESSES, batch=1, places=2)
    figures = [_beside(f"{PROCESSES} processes: claim, wait 10 ms, complete, one job at a time", loops, theirs, 0.6)]
    ours = _worker(server, folder, f"await asyncio.sleep({SHORT})", JOBS, PLACES)
    theirs = _pgqueuer(server, 1, batch=PLACES // 2, places=PLACES)
    figures.append(_beside(f"one process with {PLACES} places, jobs of 10 ms", ours, theirs, 1))
    for what, body, jobs, target in (
        ("jobs of 50 ms, concurrency 32", "await asyncio.sleep(0.05)", WAITING, 0.9),
        (
            "the same with one job of 30 s among them",
            f"await asyncio.sleep({LONG} if order['id'] == 100 else 0.05)",
            WITH_LONG,
            0.85,
        ),
    ):
        rate = _worker(server, folder, body, jobs, 32)
        figures.append(Figure(f"{what}, vs the ideal 640/s", rate / 640, target, detail=f"{rate:,.0f} jobs/s"))
    return figures


def _beside(what: str, ours: float, theirs: float, target: float) -> Figure:
    return Figure(f"{what}, vs PGQueuer", ours / theirs, target, detail=f"{ours:,.0f} jobs/s against {theirs:,.0f}")


def _loaded(server: PostgresServer, jobs: int) -> str:
    url = server.create_database()
    with penstock.open(url) as log:
        for numbers in loads(jobs):
            log.submit_many(orders(numbers))
    return url


def _loops(server: PostgresServer) -> float:
    return together([sys.executable, "-m", "benchmarks.jobs.loop", _loaded(server, JOBS), str(SHORT)], PROCESSES)


def _worker(server: PostgresServer, folder: Path, body: str, jobs: int, places: int) -> float:
    url = _loaded(server, jobs)
    return drain(url, app(url, folder, body, places=places, is_async=True))


def _pgqueuer(server: PostgresServer, processes: int, batch: int, places: int) -> float:
    url = server.create_database()
    ask(peer(PGQUEUER, "install", url))
    ask(peer(PGQUEUER, "load", url, JOBS))
    return together(peer(PGQUEUER, "wait", url, SHORT, batch, places), processes)
