"""One Spark session for the whole run, because it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two slots; Spark's files go into the run's directory."""
    from penstock.spark.queries.checkpoint import MANAGER, RENAMING
    from penstock.spark.session import make_session

    place = tmp_path_factory.mktemp("spark")
    session = make_session(
        "local[2]",
        name="penstock-tests",
        config={
            "spark.ui.enabled": "false",
            "spark.local.dir": str(place / "local"),
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            MANAGER: RENAMING,  # all checkpoints of tests are on this disk
        },
    )
    yield session
    session.stop()
