"""The same over HTTP: a real `penstock serve`, and clients in threads of this process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import penstock
from benchmarks.appending import orders
from benchmarks.measuring import Figure, in_turn
from penstock.connect.http import Client
from tests.support.postgres_server import PostgresServer

CLIENTS = 16
JOBS = 3_000
BATCH = 5_000


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, _serving(url) as address:
        log.submit_many([{"type": "order", "payload": {"id": n}} for n in range(JOBS)])
        pairs = JOBS / _work(address)
        events = orders(BATCH)
        with Client(address) as client:
            client.append_many("orders", events)
            over, direct = in_turn(
                lambda: client.append_many("orders", events), lambda: log.append_many("direct", events), times=5
            )
    detail = f"{BATCH / over:,.0f} events/s against {BATCH / direct:,.0f}"
    return [
        Figure(f"HTTP: claim and complete, {CLIENTS} clients", pairs, None, unit="pairs/s"),
        Figure("HTTP: bulk appends of 5 k vs append_many", direct / over, 0.5, detail=detail),
    ]


@contextmanager
def _serving(url: str) -> Iterator[str]:
    options = ["--no-auth", "--port", "0", "--rate", "1000000", "--json", "--url", url]
    command = [sys.executable, "-m", "penstock.cli", "serve", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()


def _work(address: str) -> float:
    """Seconds until all jobs are done."""
    ready = threading.Barrier(CLIENTS + 1)

    def loop(name: str) -> None:
        with Client(address) as client:
            ready.wait()
            while (job := client.claim_job(name, types=["order"])) is not None:
                client.complete_job(job.id, name, token=job.token)

    threads = [threading.Thread(target=loop, args=(f"w-{n}",)) for n in range(CLIENTS)]
    for one in threads:
        one.start()
    ready.wait()
    begin = time.perf_counter()
    for one in threads:
        one.join()
    return time.perf_counter() - begin
