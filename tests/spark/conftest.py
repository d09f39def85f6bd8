"""Tests that need Spark; the session itself is in tests/support/spark_session.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ON_BOTH_STORES = ("test_handlers", "test_jobs", "test_reading")  # on SQLite the other files run only with `./run prove`


@pytest.hookimpl(tryfirst=True)  # so that the marks exist when -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        on_sqlite = HERE in item.path.parents and "sqlite" in item.name.partition("[")[2]
        if on_sqlite and item.path.stem not in ON_BOTH_STORES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def notes(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """The notes of handlers in Spark's workers."""
    spark.sparkContext.environment["PENSTOCK_NOTES"] = str(tmp_path / "notes")
    yield tmp_path / "notes"
    del spark.sparkContext.environment["PENSTOCK_NOTES"]
