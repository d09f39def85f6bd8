"""How soon an idle worker starts a job."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg

import penstock
from benchmarks.jobs.workers import app, worker
from benchmarks.measuring import Figure
from benchmarks.side_by_side import PGQUEUER, ask, noted, peer, running, share
from tests.support.postgres_server import PostgresServer

TURNS, EACH, PAUSE, WARM = 10, 60, 0.1, 10  # many short turns: what disturbs the machine disturbs both
NOTING = "open({notes!r}, 'a').write(f\"{{time.time() - order['at']}}\\n\")"


def run(server: PostgresServer, folder: Path) -> list[Figure]:
    ours, theirs = server.create_database(), server.create_database()
    penstock.open(ours).close()
    ask(peer(PGQUEUER, "install", theirs))
    found: dict[str, list[float]] = {"own": [], "caller": [], "peer": []}
    for turn in range(TURNS):
        found["own"] += _ours(ours, folder, turn, in_callers=False)
        found["peer"] += _theirs(theirs, folder, turn)
        if turn % 2:
            found["caller"] += _ours(ours, folder, turn, in_callers=True)
    figures = []
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        own, caller, others = (1000 * share(found[one], part) for one in ("own", "caller", "peer"))
        detail = f"{own:.2f} ms against {others:.2f} ms"
        what = f"idle pickup of a submit on its own connection, {name}, vs PGQueuer"
        figures.append(Figure(what, own / others, 1.3, at_least=False, detail=detail))
        figures.append(Figure(f"the same, {name}", own, 50 if part > 0.9 else None, at_least=False, unit="ms"))
        figures.append(Figure(f"the same, submit in the caller's transaction, {name}", caller, None, unit="ms"))
    return figures


def _ours(url: str, folder: Path, turn: int, *, in_callers: bool) -> list[float]:
    notes = folder / f"notes-{turn}-{in_callers}"
    file = app(url, folder, NOTING.format(notes=str(notes)))
    with running(worker(file)), penstock.open(url) as log, psycopg.connect(url) as caller:
        log.submit("order", {"at": time.time()})
        noted(notes, 1, WARM)
        for _ in range(EACH - 1):
            time.sleep(PAUSE)
            log.submit("order", {"at": time.time()}, connection=caller if in_callers else None)
            caller.commit()
        return noted(notes, EACH, WARM)


def _theirs(url: str, folder: Path, turn: int) -> list[float]:
    notes = folder / f"peer-{turn}"
    with running(peer(PGQUEUER, "work", url, notes)):
        ask(peer(PGQUEUER, "produce", url, 1, PAUSE))
        noted(notes, 1, WARM)
        ask(peer(PGQUEUER, "produce", url, EACH - 1, PAUSE))
        return noted(notes, EACH, WARM)
