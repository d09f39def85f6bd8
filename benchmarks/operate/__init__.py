"""Operating it: pages that cost the same however long the log is, and what operations, archives and telemetry cost."""

from __future__ import annotations

from benchmarks.measuring import Figure
from benchmarks.operate import archive, pages, redrive, telemetry, viewers
from tests.support.postgres_server import PostgresServer


def run(server: PostgresServer) -> list[Figure]:
    return [
        *pages.run(server),
        *viewers.run(server),
        *redrive.run(server),
        *archive.run(server),
        *telemetry.run(server),
    ]
