"""What operating a log costs."""

from __future__ import annotations

from benchmarks.measuring import Figure
from benchmarks.operate import telemetry
from tests.support.postgres_server import PostgresServer


def run(server: PostgresServer) -> list[Figure]:
    return [*telemetry.run(server)]
