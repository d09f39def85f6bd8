"""How soon an idle worker starts a job. Both workers live on; while one has its turn, the other one is stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

import penstock
from benchmarks.jobs.workers import app, worker
from benchmarks.measuring import Figure
from benchmarks.side_by_side import PGQUEUER, ask, noted, peer, running, share
from tests.support.postgres_server import PostgresServer

TURNS, EACH, PAUSE, WARM = 50, 11, 0.1, 1
WARM_UP = 30  # jobs before the first turn: connections and plans are cold
NOTING = "open({notes!r}, 'a').write(f\"{{time.time() - order['at']}}\\n\")"


class Idle:
    """A worker with nothing to do, and how to give it something."""

    def __init__(self, process: subprocess.Popen[Any], notes: Path, submit: Callable[[], object]) -> None:
        self._process = process
        self._notes = notes
        self._submit = submit
        self._seen = 0

    def turn(self, jobs: int, submit: Callable[[], object] | None = None) -> list[float]:
        """Give it so many jobs; how long each took from the call that stored it to its start."""
        self._process.send_signal(signal.SIGCONT)
        for _ in range(jobs):
            time.sleep(PAUSE)
            (submit or self._submit)()
        found = noted(self._notes, self._seen + jobs, self._seen)
        self._seen += jobs
        self._process.send_signal(signal.SIGSTOP)
        return found


def run(server: PostgresServer, folder: Path) -> list[Figure]:
    ours, theirs = server.create_database(), server.create_database()
    penstock.open(ours).close()
    ask(peer(PGQUEUER, "install", theirs))
    notes = [folder / "notes-ours", folder / "notes-theirs"]
    file = app(ours, folder, NOTING.format(notes=str(notes[0])))
    with ExitStack() as stack:
        log = stack.enter_context(penstock.open(ours))
        caller = stack.enter_context(psycopg.connect(ours))
        feeder = stack.enter_context(running(peer(PGQUEUER, "feed", theirs), pipes=True))
        mine = stack.enter_context(running(worker(file)))
        others = stack.enter_context(running(peer(PGQUEUER, "work", theirs, notes[1])))

        def in_callers() -> None:
            log.submit("order", {"at": time.time()}, connection=caller)
            caller.commit()

        own = Idle(mine, notes[0], lambda: log.submit("order", {"at": time.time()}))
        their = Idle(others, notes[1], lambda: _enqueue(feeder))
        found: dict[str, list[float]] = {"own": [], "caller": [], "peer": []}
        for one in (own, their):
            one.turn(WARM_UP)
        for turn in range(TURNS):
            found["own"] += own.turn(EACH)[WARM:]
            found["peer"] += their.turn(EACH)[WARM:]
            if turn % 5 == 0:
                found["caller"] += own.turn(EACH, in_callers)[WARM:]
    figures = []
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        mine_ms, callers_ms, theirs_ms = (1000 * share(found[one], part) for one in ("own", "caller", "peer"))
        detail = f"{mine_ms:.2f} ms against {theirs_ms:.2f} ms"
        what = f"idle pickup of a submit on its own connection, {name}, vs PGQueuer"
        figures.append(Figure(what, mine_ms / theirs_ms, 1.3, at_least=False, detail=detail))
        figures.append(Figure(f"the same, {name}", mine_ms, 50 if part > 0.9 else None, at_least=False, unit="ms"))
        figures.append(Figure(f"the same, submit in the caller's transaction, {name}", callers_ms, None, unit="ms"))
    return figures


def _enqueue(feeder: subprocess.Popen[Any]) -> None:
    assert feeder.stdin is not None and feeder.stdout is not None
    feeder.stdin.write("one\n")
    feeder.stdin.flush()
    feeder.stdout.readline()
