"""The way of one event, from append to PUBLISHED: how many files it passes, and in which order of rooms."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import penstock
from penstock.declare.groups import declare
from penstock.engine.local.engine import LocalEngine
from tests.support.declarations import subscription
from tests.support.waiting import wait_until

ROOT = str(Path(penstock.__file__).parent) + "/"
# Threads of their own and subscribers: they look on while the event passes.
WATCHERS = {
    "engine/counters.py",
    "engine/failure_log.py",
    "engine/heartbeat.py",
    "engine/lookout.py",
    "log/bookkeeping.py",
}
MOST = 30


def handle(event: penstock.Event) -> None:
    """Do nothing: the way there and back is what counts."""


class Trace:
    """The files of the package whose functions are called, by the thread that calls them, in order."""

    def __init__(self) -> None:
        self.on = False
        self.files: dict[str, list[str]] = {}

    def __call__(self, frame: FrameType, what: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if self.on and what == "call" and name.startswith(ROOT):
            thread = threading.current_thread().name
            self.files.setdefault(thread, []).append(name.removeprefix(ROOT))


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace this thread, and all that begin within."""
    trace = Trace()
    threading.setprofile(trace)
    try:
        yield trace
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
        sys.setprofile(None)


def test_an_event_passes_at_most_thirty_files(tmp_path: Path) -> None:
    """Values and rules in `core` are not stations, and neither is who only looks on."""
    with penstock.open(f"sqlite:///{tmp_path / 'log.db'}") as log, traced() as trace:
        plain = subscription(handle, isolation="inline")
        declare(log, plain, "test")
        engine = LocalEngine(log, [plain])
        engine.start()
        wait_until(lambda: engine.idle)
        trace.on = True
        sys.setprofile(trace)
        log.append("orders", {"n": 1}, type="t")
        sys.setprofile(None)
        caller = trace.files[threading.current_thread().name]
        wait_until(lambda: log.drained("orders", "g"))
        trace.on = False
        engine.stop()
        engine.wait()
    carriers = {name: files for name, files in trace.files.items() if name.endswith("orders/g") or "settle" in name}
    assert len(carriers) == 2, "one thread claims and handles, another settles"
    stations = {file for files in (caller, *carriers.values()) for file in files}
    stations -= WATCHERS | {file for file in stations if file.startswith("core/")}
    assert "log/append.py" in stations and "log/settle.py" in stations and "engine/handlers/runner.py" in stations
    assert len(stations) <= MOST, sorted(stations)


def test_appending_enters_no_engine(tmp_path: Path) -> None:
    with penstock.open(f"sqlite:///{tmp_path / 'log.db'}") as log:
        trace = Trace()
        trace.on = True
        sys.setprofile(trace)
        log.append("orders", {"n": 1}, type="t")
        sys.setprofile(None)
    (files,) = trace.files.values()
    assert {file.partition("/")[0] for file in files} == {"log", "core", "stores"}
