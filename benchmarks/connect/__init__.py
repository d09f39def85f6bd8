"""Out to other systems and in from them, held against their client libraries doing the same from a plain loop."""

from __future__ import annotations

from benchmarks.connect import latency, relay
from benchmarks.measuring import Figure
from tests.support.postgres_server import PostgresServer


def run(server: PostgresServer) -> list[Figure]:
    return [*relay.run(server), *latency.run(server)]
