"""Every page of the dashboard at 2 M events, 50 groups and 100 k dead letters, against a small log like it."""

from __future__ import annotations

import statistics
import time

import httpx
import psycopg

import penstock
from benchmarks.measuring import Figure
from benchmarks.operate.big_log import Filled, fill_log
from penstock.http.auth import NoAuth
from tests.support.http_service import serving
from tests.support.postgres_server import PostgresServer

SMALL, LARGE = (20_000, 1_000), (2_000_000, 100_000)  # events, dead letters
TIMES = 15
MOST_MS = 100.0


def run(server: PostgresServer) -> list[Figure]:
    small, large = (_milliseconds(server, *size) for size in (SMALL, LARGE))
    figures = []
    for page, taken in large.items():
        detail = f"{taken:.1f} ms against {small[page]:.1f} ms"
        ratio = Figure(
            f"{page}: 2 M events, 50 groups, 100 k dead vs 20 k events",
            taken / small[page],
            1.5,
            at_least=False,
            detail=detail,
        )
        figures.append(ratio)
    slowest = max(large, key=lambda page: large[page])
    detail = f"{slowest}, of {len(large)} pages"
    return [
        *figures,
        Figure("the slowest page's server time", large[slowest], MOST_MS, at_least=False, unit="ms", detail=detail),
    ]


def paths(filled: Filled) -> dict[str, str]:
    """Every screen, and what is the most expensive on it."""
    group = f"/s/orders/g/{filled.group}"
    return {
        "overview": "/",
        "overview, 7 days": "/?window=7d",
        "stream": "/s/orders",
        "group": group,
        "group, 7 days": f"{group}?window=7d",
        "dead letters": f"{group}/dead",
        "operations": "/ops",
        "operation": f"/ops/{filled.operation}",
        "event": f"/e/{filled.event_id}",
        "dead event": f"/e/{filled.dead_id}",
        "jobs": "/jobs",
        "system": "/system",
    }


def _milliseconds(server: PostgresServer, events: int, dead: int) -> dict[str, float]:
    """The median time of each page, by turns."""
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        filled = fill_log(log, connection, events, dead)
        wanted = paths(filled)
        taken: dict[str, list[float]] = {page: [] for page in wanted}
        with serving(log, NoAuth(), requests_per_second=1e6) as service, service.http() as client:
            for turn in range(TIMES + 2):
                for page, path in wanted.items():
                    spent = _fetch(client, path)
                    if turn > 1:  # the first two warm up
                        taken[page].append(spent)
    return {page: statistics.median(times) * 1e3 for page, times in taken.items()}


def _fetch(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    found = client.get(path)
    spent = time.perf_counter() - began
    assert found.status_code == 200 and "<html" in found.text, (path, found.status_code, found.text[:500])
    return spent
