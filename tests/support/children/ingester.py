"""An ingester of its own process: of a Valkey stream, or of a Kafka topic. It ends only when it is killed."""

from __future__ import annotations

import sys
from typing import Any

import penstock
from penstock.connect import KafkaTopic, ValkeyStream
from penstock.engine.ingest.engine import IngestEngine
from penstock.errors import AWAY


def source_of(kind: str, server: str, consumer: str, batch: int) -> Any:
    if kind == "valkey":
        options: dict[str, Any] = {
            "consumer": consumer,
            "min_idle_seconds": 1.0,
            "timeout_seconds": 3,
            "name": "source",
        }
        return ValkeyStream(server, "clicks", batch=batch, **options)
    quick = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6_000}
    return KafkaTopic(server, "clicks", name="source", batch=batch, timeout_seconds=3, config=quick)


def main(url: str, kind: str, server: str, consumer: str, batch: str) -> None:
    while True:
        try:
            log = penstock.open(url)
            break
        except AWAY:
            continue
    app = penstock.App(name="shop")
    app.ingest(source_of(kind, server, consumer, int(batch)), into="clicks")
    engine = IngestEngine(log, app.ingests)
    engine.start()
    engine.wait()
    sys.exit(f"ended: {engine.paused}")


if __name__ == "__main__":
    main(*sys.argv[1:])
