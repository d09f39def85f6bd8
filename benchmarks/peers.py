"""Penstock beside PGQueuer, in one run on one server: how soon an idle worker starts, and how fast a backlog drains.

PGQueuer runs in an environment of its own (`requirements/bench.txt`), which `./run bench` makes. It has what it is best
with: asyncpg, uvloop, batches of 1,000. Both run as separate processes, Penstock by its command line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

import penstock
from benchmarks.claiming import orders
from benchmarks.measuring import Figure
from benchmarks.side_by_side import PGQUEUER, ask, noted, peer, running, settled, share, together
from tests.support.postgres_server import PostgresServer

EVENTS = 1_000_000
PEERS_SHARE = 200_000  # of its million jobs: all of them would take minutes, turn by turn
LOAD = 50_000
TURNS, EACH, PAUSE = 6, 100, 0.1  # a p99 of fewer events would be that of two or three accidents
WARM = 10  # the first of each turn are not counted

APP = """
import json, time
from penstock import App

app = App({url!r}, name="peers")
notes = open({notes!r}, "a", buffering=1)

@app.subscribe("orders", group="g")
def handle(event):
    {body}
"""
NOTING = "notes.write(f\"{time.time() - json.loads(event.payload)['at']}\\n\")"
PARSING = "json.loads(event.payload)"


def run(server: PostgresServer) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="penstock-peers-") as name:
        work = Peers(server, Path(name))
        return [*work.latency(), *work.drains()]


class Peers:
    """By turns, each on a database of its own."""

    def __init__(self, server: PostgresServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self._number = 0

    def _database(self, peer: bool) -> str:
        url = self._server.create_database()
        if peer:
            self._peer("install", url)
        else:
            penstock.open(url).close()
        return url

    def _peer(self, *arguments: object) -> str:
        return ask(peer(PGQUEUER, *arguments))

    def _app(self, url: str, body: str, notes: Path) -> Path:
        self._number += 1
        file = self._directory / f"app{self._number}.py"
        file.write_text(APP.format(url=url, notes=str(notes), body=body))
        return file

    # --- how soon an idle worker starts --------------------------------------------------------------------------

    def latency(self) -> list[Figure]:
        found: dict[str, list[float]] = {"own": [], "outbox": [], "peer": []}
        ours, theirs = self._database(peer=False), self._database(peer=True)
        for turn in range(TURNS):
            found["own"] += self._ours(ours, outbox=False)
            found["peer"] += self._theirs(theirs)
            if turn % 2:
                found["outbox"] += self._ours(ours, outbox=True)
        figures = []
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            own, outbox, peer = (1000 * share(found[one], part) for one in ("own", "outbox", "peer"))
            detail = f"{own:.2f} ms against {peer:.2f} ms"
            what = f"append to handler start, 10 events/s, idle, {name}, vs PGQueuer"
            figures.append(Figure(what, own / peer, 1.5, at_least=False, detail=detail))
            figures.append(Figure(f"the same, append in the caller's transaction, {name}", outbox, None, unit="ms"))
        return figures

    def _ours(self, url: str, *, outbox: bool) -> list[float]:
        notes = self._directory / f"notes{self._number}"
        app = self._app(url, NOTING, notes)
        command = [sys.executable, "-m", "penstock.cli", "run", str(app), "--engine", "local"]
        with running(command), penstock.open(url) as log, psycopg.connect(url) as caller:
            log.append("orders", {"at": time.time()}, type="t")
            noted(notes, 1, WARM)
            for _ in range(EACH - 1):
                time.sleep(PAUSE)
                log.append("orders", {"at": time.time()}, type="t", connection=caller if outbox else None)
                caller.commit()
            return noted(notes, EACH, WARM)

    def _theirs(self, url: str) -> list[float]:
        notes = self._directory / f"peer{self._number}"
        with running(peer(PGQUEUER, "work", url, notes)):
            self._peer("produce", url, 1, PAUSE)
            noted(notes, 1, WARM)
            self._peer("produce", url, EACH - 1, PAUSE)
            return noted(notes, EACH, WARM)

    # --- how fast a backlog drains -------------------------------------------------------------------------------

    def drains(self) -> list[Figure]:
        figures = []
        for count, target in ((1, 14), (2, 9)):
            ours, theirs = self._drain_ours(count), self._drain_theirs(count)
            what = f"{EVENTS:,} events freshly loaded, JSON-parsing handler, isolated, {count} × `penstock run`"
            detail = f"{ours:,.0f} events/s against {theirs:,.0f}"
            figures.append(Figure(f"{what}, vs PGQueuer's {count}", ours / theirs, target, detail=detail))
        return figures

    def _drain_ours(self, count: int) -> float:
        url = self._database(peer=False)
        with penstock.open(url) as log:
            for _ in range(EVENTS // LOAD):
                log.append_many("orders", orders(LOAD))
            app = self._app(url, PARSING, self._directory / "none")
            command = [sys.executable, "-m", "penstock.cli", "run", str(app), "--engine", "local", "--until-drained"]
            runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
            assert [one.wait() for one in runs] == [0] * count
        events, seconds = settled(url)
        assert events == EVENTS
        return EVENTS / seconds

    def _drain_theirs(self, count: int) -> float:
        url = self._database(peer=True)
        self._peer("load", url, EVENTS)
        return together(peer(PGQUEUER, "drain", url, PEERS_SHARE // count), count)
