"""What metrics and traces cost: CPU per event of the engine and its handler's process, on against off, by turns.

Spans are exported to a collector in a process of its own, whose time does not count.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import penstock
from benchmarks.claiming import fill
from benchmarks.engine import subscribed
from benchmarks.measuring import Figure
from penstock.declare.groups import declare
from penstock.engine.local.engine import LocalEngine
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.traces import tracing
from tests.support.postgres_server import PostgresServer

EVENTS = 200_000
TURNS = 7
WANTED = 1.03
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_COLLECTOR = """
import sys
from tests.support.collector import Collector
with Collector() as collector:
    print(collector.url, flush=True)
    sys.stdin.read()
"""
_TICK = os.sysconf("SC_CLK_TCK")
_numbers = count()


def run(server: PostgresServer, events: int = EVENTS, turns: int = TURNS) -> list[Figure]:
    with penstock.open(server.create_database()) as log, collecting():
        fill(log, "plain", events, 10_000)
        traced = [{"payload": n, "type": "t", "metadata": {"traceparent": PARENT}} for n in range(events)]
        for first in range(0, events, 50_000):
            log.append_many("traced", traced[first : first + 50_000])
        return [
            compare(log, "plain", events, turns, "metrics and traces on vs off, isolated handler, CPU per event"),
            compare(log, "traced", len(traced), turns, "the same, where every event has a trace"),
        ]


def compare(log: penstock.Log, stream: str, events: int, turns: int, what: str) -> Figure:
    """Off and on by turns; the first turn of each warms up. The median of the ratios counts."""
    costs: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(turns + 1):
        for on in (False, True) if turn % 2 else (True, False):
            cost = drain(log, stream, events, on)
            if turn:
                costs[on].append(cost)
    ratio = statistics.median(on / off for on, off in zip(costs[True], costs[False], strict=True))
    off, on = (1e6 * statistics.median(costs[one]) for one in (False, True))
    detail = f"{on:.2f} µs against {off:.2f}"
    return Figure(what, ratio, WANTED, at_least=False, detail=detail)


def drain(log: penstock.Log, stream: str, events: int, on: bool) -> float:
    """Seconds of CPU per event, of this process and of the handler's; both are warm before it begins."""
    group = f"g{next(_numbers)}"
    subscription = subscribed("parse", stream, group)
    declare(log, subscription, "bench")
    log.pause(stream, group)
    with ExitStack() as stack:
        if on:
            stack.enter_context(Metrics().counting())
            stack.enter_context(tracing(True))
        engine = LocalEngine(log, [subscription])
        engine.start()
        while not engine.idle:
            time.sleep(0.01)
        before = cpu_seconds()
        log.resume(stream, group)
        while engine.snapshot()[subscription.name]["published"] < events:
            time.sleep(0.05)
        used = cpu_seconds() - before
        engine.stop()
        engine.wait()
    return used / events


def cpu_seconds() -> float:
    """Of this process and of its children that live, the collector aside."""
    children = {
        int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
    }
    return time.process_time() + sum(map(_seconds_of, children - _others))


_others: set[int] = set()


def _seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


@contextmanager
def collecting() -> Iterator[None]:
    """A collector to which traces are exported, and whoever else is a child already does not count."""
    command = [sys.executable, "-c", _COLLECTOR]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    before = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = process.stdout.readline().strip()
    children = {
        int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
    }
    _others.update(children)
    try:
        yield
    finally:
        process.communicate()
        if before is None:
            del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        else:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = before
