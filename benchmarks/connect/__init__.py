"""Out to other systems and in from them, held against their client libraries doing the same from a plain loop."""

from __future__ import annotations

from benchmarks.connect import ingest, latency, relay
from benchmarks.measuring import Figure
from penstock.engine.thread_switch import quick_turns
from tests.support.postgres_server import PostgresServer


def run(server: PostgresServer) -> list[Figure]:
    with quick_turns():  # as `penstock run` does
        return [*relay.run(server), *ingest.run(server), *latency.run(server)]
