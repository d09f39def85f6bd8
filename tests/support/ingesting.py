"""Ingest from sources on this thread's log, until they have nothing more or until the test stops it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.engine.ingest.engine import IngestEngine
from tests.support.local_engine import PATIENCE_SECONDS


def app_with(source: Any, into: str = "clicks", **options: Any) -> penstock.App:
    """An app that ingests from one source."""
    app = penstock.App(name="shop")
    app.ingest(source, into=into, **options)
    return app


def ingest_until_drained(log: penstock.Log, *sources: Any, into: str = "clicks", **options: Any) -> dict[str, int]:
    """Ingest everything there is; return the counts of all sources together."""
    app = penstock.App(name="shop")
    for source in sources:
        app.ingest(source, into=into, **options)
    engine = IngestEngine(log, app.ingests, until_drained=True)
    engine.start()
    try:
        assert engine.wait(PATIENCE_SECONDS), f"still reading: {engine.ingested()}"
    finally:
        engine.stop()
    assert not engine.paused, engine.paused
    found = engine.ingested().values()
    return {name: sum(one[name] for one in found) for name in next(iter(found)) if any(one[name] for one in found)}


@contextmanager
def ingesting(log: penstock.Log, source: Any, into: str = "clicks", **options: Any) -> Iterator[IngestEngine]:
    """An engine that reads until the test is done with it; the test fails if it ends earlier."""
    engine = IngestEngine(log, app_with(source, into, **options).ingests)
    engine.start()
    try:
        yield engine
        assert not engine.wait(0), "the engine ended by itself"
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS)


def count_of(engine: IngestEngine, name: str) -> int:
    """One count of all its sources."""
    return sum(one[name] for one in engine.ingested().values())


def numbers(log: penstock.Log, stream: str = "clicks") -> list[int]:
    """The n of every event, in the order of the log."""
    return [int(event.json()["n"]) for event in log.read(stream, limit=100_000)]
