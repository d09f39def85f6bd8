"""How long one event takes from its append to its arrival at a target, held against its way to a handler."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import penstock
from benchmarks import handlers
from benchmarks.measuring import Figure
from penstock.declare.subscription import Policy, Subscription, handler_of
from penstock.engine.local.engine import LocalEngine
from tests.support.postgres_server import PostgresServer
from tests.support.valkey_server import ValkeyServer

SINGLES = 200
PAUSE = 0.05  # between two events: each meets an idle engine


def run(server: PostgresServer) -> list[Figure]:
    with (
        penstock.open(server.create_database()) as log,
        ValkeyServer(None, "--appendonly", "no") as target,
        tempfile.TemporaryDirectory() as folder,
    ):
        arrivals, calls = [], []
        app = penstock.App(name="bench")
        app.publish("out", group="g", publisher=penstock.connect.Valkey(target.url, stream="arrived"))
        noted = Path(folder) / "calls"
        noted.touch()
        os.environ[handlers.CALLS] = str(noted)  # for the handler's process
        handled = Subscription("in", "h", Policy(), [handler_of(handlers.note_call, None)])
        engine = LocalEngine(log, [*app.subscriptions, handled])
        engine.start()
        client = target.client()
        last = "$"
        for number in range(SINGLES + 20):
            time.sleep(PAUSE)
            began = time.monotonic_ns()
            log.append("out", {"n": number}, type="t")
            ((_, ((last, _),)),) = client.xread({"arrived": "0" if number == 0 else last}, block=10_000, count=1)
            arrivals.append(time.monotonic_ns() - began)
            time.sleep(PAUSE)
            began = time.monotonic_ns()
            log.append("in", {"n": number}, type="t")
            while noted.stat().st_size < 20 * (number + 1):
                time.sleep(0.001)
            calls.append(int(noted.read_bytes()[-20:]) - began)
        engine.stop()
        engine.wait()
    ours, theirs = (statistics.median(some[20:]) / 1e6 for some in (arrivals, calls))
    detail = f"{ours:.2f} ms against {theirs:.2f} ms"
    what = "one event, append to arrival in Valkey vs append to handler, p50"
    return [Figure(what, ours / theirs, 1.5, at_least=False, detail=detail)]
