"""A thousand groups on one stream: what one of them asks for must cost what it costs alone."""

from __future__ import annotations

import statistics
import time

import penstock
from benchmarks.claiming import fill
from benchmarks.measuring import Figure, best
from tests.support.postgres_server import PostgresServer

EVENTS = 20_000
GROUPS = 1_000
LIMIT = 100
TIMES = 50  # claims of each, by turns


def run(server: PostgresServer) -> list[Figure]:
    with penstock.open(crowd(server, 1)) as alone, penstock.open(crowd(server, GROUPS)) as crowded:
        one, thousand = claims(alone, crowded)
        everything = best(crowded.stats, times=5)
    with penstock.open(crowd(server, 10)) as ten:
        few = best(ten.stats, times=5)
    detail = f"{everything * 1e3:,.0f} ms against {few * 1e3:.1f} ms"
    return [
        Figure(
            f"claim of one group: {GROUPS:,} groups vs one",
            thousand / one,
            1.5,
            at_least=False,
            detail=f"{thousand * 1e3:.2f} ms against {one * 1e3:.2f} ms",
        ),
        Figure(f"stats(): {GROUPS:,} groups vs 10", everything / few, 100, at_least=False, detail=detail),
        Figure(f"stats() of {GROUPS:,} groups", everything, 2, at_least=False, unit="s"),
    ]


def crowd(server: PostgresServer, groups: int) -> str:
    """A log whose groups have all begun to work, and are not done."""
    url = server.create_database()
    with penstock.open(url) as log:
        fill(log, "orders", EVENTS)
        for number in range(groups):
            log.create_group("orders", f"g{number}")
            lease = log.claim("orders", f"g{number}", limit=LIMIT, claimed_by="bench")
            assert lease is not None
            lease.settle()
    return url


def claims(alone: penstock.Log, crowded: penstock.Log) -> tuple[float, float]:
    """The median time of a claim in each of them."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(TIMES):
        for log, seconds in zip((alone, crowded), taken, strict=True):
            begin = time.perf_counter()
            lease = log.claim("orders", "g0", limit=LIMIT, claimed_by="bench")
            seconds.append(time.perf_counter() - begin)
            assert lease is not None
            lease.settle()
    return statistics.median(taken[0]), statistics.median(taken[1])
