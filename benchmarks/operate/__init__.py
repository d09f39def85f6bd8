"""Operating it: pages that cost the same however long the log is, and what operations, archives and telemetry cost."""

from __future__ import annotations

from benchmarks.measuring import Figure
from benchmarks.operate import archive, pages, redrive, telemetry, viewers
from benchmarks.operate.big_log import filled
from tests.support.postgres_server import PostgresServer


def run(server: PostgresServer) -> list[Figure]:
    with filled(server, 20_000, 1_000) as small, filled(server, 2_000_000, 100_000) as large:
        looks = [*pages.run(small, large), *viewers.run(large)]
    return [
        *looks,
        *redrive.run(server),
        *archive.run(server),
        *telemetry.run(server),
    ]
