"""Every page of the dashboard at 2 M events, 50 groups and 100 k dead letters, by turns with a small log like it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx

from benchmarks.measuring import Figure
from benchmarks.operate.big_log import Filled
from penstock.http.auth import NoAuth
from tests.support.http_service import serving

TIMES = 25
MOST_MS = 100.0


def run(one: Filled, other: Filled) -> list[Figure]:
    small, large = _milliseconds(one, other)
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


def _milliseconds(*logs: Filled) -> list[dict[str, float]]:
    """The median time of each page of each log, as somebody waits for it: the two logs by turns, page by page."""
    taken: list[dict[str, list[float]]] = [{page: [] for page in paths(filled)} for filled in logs]
    with ExitStack() as stack:
        clients = [stack.enter_context(_served(filled)) for filled in logs]
        for turn in range(TIMES + 2):
            for page in taken[0]:
                for filled, client, times in zip(logs, clients, taken, strict=True):
                    spent = _fetch(client, paths(filled)[page])
                    if turn > 1:  # the first two warm up
                        times[page].append(spent)
    return [{page: statistics.median(times) * 1e3 for page, times in of_log.items()} for of_log in taken]


@contextmanager
def _served(filled: Filled) -> Iterator[httpx.Client]:
    with serving(filled.log, NoAuth(), requests_per_second=1e6) as service, service.http() as client:
        yield client


def _fetch(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    found = client.get(path)
    spent = time.perf_counter() - began
    assert found.status_code == 200 and "<html" in found.text, (path, found.status_code, found.text[:500])
    return spent
