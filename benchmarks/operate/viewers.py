"""What ten open overviews cost the database while a group works: the CPU time of the dashboard's own connections."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import psycopg
from playwright.sync_api import sync_playwright

import penstock
from benchmarks.measuring import Figure
from benchmarks.operate.big_log import Filled
from penstock.http.auth import NoAuth
from tests.support.http_service import serving

VIEWERS = 10
SECONDS = 30.0
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
_TICKS = os.sysconf("SC_CLK_TCK")


def run(filled: Filled) -> list[Figure]:
    with psycopg.connect(filled.url, autocommit=True) as connection:
        connection.execute("create role dashboard superuser login")
        with penstock.open(filled.url.replace("//postgres@", "//dashboard@")) as looked_at, _Trickle(filled.log):
            used = _with_viewers(looked_at, connection)
    detail = f"{used * SECONDS * 1e3:.0f} ms of CPU in {SECONDS:.0f} s, while events come and go"
    return [
        Figure(
            f"{VIEWERS} open overviews: a core of the database",
            used * 100,
            1.0,
            at_least=False,
            unit="%",
            detail=detail,
        )
    ]


def _with_viewers(log: penstock.Log, connection: psycopg.Connection) -> float:
    """The part of a core that the connections of the dashboard use."""
    with serving(log, NoAuth()) as service, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for _ in range(VIEWERS):
            browser.new_context().new_page().goto(service.url, wait_until="load")
        before, began = _cpu_seconds(connection), time.monotonic()
        time.sleep(SECONDS)
        used = (_cpu_seconds(connection) - before) / (time.monotonic() - began)
        browser.close()
    return used


def _cpu_seconds(connection: psycopg.Connection) -> float:
    """What the processes of the dashboard's connections have used so far. None of them ends meanwhile."""
    rows = connection.execute("select pid from pg_stat_activity where usename = 'dashboard'").fetchall()
    total = 0
    for (pid,) in rows:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


class _Trickle:
    """Ten events a second that one group handles, from a thread of its own."""

    def __init__(self, log: penstock.Log) -> None:
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self._log.append("orders", {"id": 1}, type="order")
            lease = self._log.claim("orders", "g01", limit=10, claimed_by="trickle")
            if lease is not None:
                lease.settle()
