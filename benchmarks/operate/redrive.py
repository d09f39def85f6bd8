"""A stored redrive at full rate against the bare one, of as many dead letters."""

from __future__ import annotations

import psycopg

import penstock
from benchmarks.claiming import fill
from benchmarks.measuring import Figure, overall, seconds
from benchmarks.operate.big_log import bury
from tests.support.postgres_server import PostgresServer

DEAD = 100_000
TURNS = 5


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        fill(log, "orders", DEAD)
        bare, stored = [], []
        for turn in range(2 * TURNS + 2):
            group = f"turn-{turn}"
            log.create_group("orders", group)
            bury(log, group, DEAD)
            connection.execute("vacuum analyze penstock.deliveries")
            connection.execute("checkpoint")
            rates, redrive = (bare, _bare) if turn % 2 else (stored, _stored)
            taken = seconds(lambda group=group, redrive=redrive: redrive(log, group))  # type: ignore[misc]
            if turn > 1:  # the first two warm up
                rates.append(DEAD / taken)
            assert log.stats("orders", group).groups[0].dead == 0
            log.delete_group("orders", group)
    detail = f"{overall(stored):,.0f} dead letters/s against {overall(bare):,.0f}"
    return [
        Figure(
            f"redrive of {DEAD:,} as an operation vs `log.redrive`", overall(stored) / overall(bare), 0.8, detail=detail
        )
    ]


def _bare(log: penstock.Log, group: str) -> None:
    assert log.redrive("orders", group, all=True).count == DEAD


def _stored(log: penstock.Log, group: str) -> None:
    started = log.operation("redrive", "orders", group, all=True).start()
    while log.run_operations(5.0):
        pass
    done = log.get_operation(started.id).info
    assert done.state == "done" and done.moved == DEAD, done
