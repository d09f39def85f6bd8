"""Penstock beside PGQueuer, in one run on one server: how soon an idle worker starts, and how fast a backlog drains.

PGQueuer runs in an environment of its own (`requirements/bench.txt`), which `./run bench` makes. It has what it is best
with: asyncpg, uvloop, batches of 1,000. Both run as separate processes, Penstock by its command line.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

import penstock
from benchmarks.claiming import orders
from benchmarks.measuring import Figure
from tests.support.postgres_server import PostgresServer

PYTHON = Path(os.environ.get("PENSTOCK_PEERS", ".venv/peers")) / "bin" / "python"
PEER = Path(__file__).with_name("pgqueuer_peer.py")
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
        command = [str(PYTHON), str(PEER), *map(str, arguments)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

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
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            own, outbox, peer = (1000 * _share(found[one], share) for one in ("own", "outbox", "peer"))
            detail = f"{own:.2f} ms against {peer:.2f} ms"
            what = f"append to handler start, 10 events/s, idle, {name}, vs PGQueuer"
            figures.append(Figure(what, own / peer, 1.5, at_least=False, detail=detail))
            figures.append(Figure(f"the same, append in the caller's transaction, {name}", outbox, None, unit="ms"))
        return figures

    def _ours(self, url: str, *, outbox: bool) -> list[float]:
        notes = self._directory / f"notes{self._number}"
        app = self._app(url, NOTING, notes)
        command = [sys.executable, "-m", "penstock.cli", "run", str(app), "--engine", "local"]
        with _running(command), penstock.open(url) as log, psycopg.connect(url) as caller:
            log.append("orders", {"at": time.time()}, type="t")
            _noted(notes, 1)
            for _ in range(EACH - 1):
                time.sleep(PAUSE)
                log.append("orders", {"at": time.time()}, type="t", connection=caller if outbox else None)
                caller.commit()
            return _noted(notes, EACH)

    def _theirs(self, url: str) -> list[float]:
        notes = self._directory / f"peer{self._number}"
        with _running([str(PYTHON), str(PEER), "work", url, str(notes)]):
            self._peer("produce", url, 1, PAUSE)
            _noted(notes, 1)
            self._peer("produce", url, EACH - 1, PAUSE)
            return _noted(notes, EACH)

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
            running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
            assert [one.wait() for one in running] == [0] * count
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "select sum(published), extract(epoch from max(ended_at) - min(claimed_at))::float8 "
                "from penstock.leases where members > 0"
            ).fetchone()
        assert row is not None and row[0] == EVENTS, row
        return EVENTS / float(row[1])

    def _drain_theirs(self, count: int) -> float:
        url = self._database(peer=True)
        self._peer("load", url, EVENTS)
        command = [str(PYTHON), str(PEER), "drain", url, str(PEERS_SHARE // count)]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        said = [one.communicate()[0].split() for one in running]
        return PEERS_SHARE / (max(float(last) for _, last in said) - min(float(first) for first, _ in said))


@contextmanager
def _running(command: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _noted(notes: Path, count: int) -> list[float]:
    """Wait until so many were handled. The first of them are not counted: they find everything cold."""
    deadline = time.monotonic() + 60
    while len(lines := notes.read_text().split() if notes.exists() else []) < count:
        assert time.monotonic() < deadline, f"{len(lines)} of {count} were handled"
        time.sleep(0.02)
    return [float(one) for one in lines][WARM:]


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
