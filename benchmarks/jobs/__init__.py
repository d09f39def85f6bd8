"""What jobs cost: beside PGQueuer and pgmq on one server, and by themselves."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.jobs import claims, drains, over_http, pickup, places, submits
from benchmarks.measuring import Figure
from tests.support.postgres_server import PostgresServer


def run(server: PostgresServer) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="penstock-jobs-") as name:
        folder = Path(name)
        return [
            *drains.run(server, folder),
            *submits.run(server),
            *places.run(server, folder),
            *pickup.run(server, folder),
            *claims.run(server),
            *over_http.run(server),
        ]
