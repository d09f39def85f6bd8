"""Tests that need Spark; the session itself is in tests/support/spark_session.py."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ON_BOTH_STORES = ("test_handlers", "test_reading")  # at any time; of the others SQLite's half is for `./run prove`


@pytest.hookimpl(tryfirst=True)  # so that the marks are there when -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several test workers, a file goes to one of them: each has a Spark of its own."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
            if "sqlite" in item.name.partition("[")[2] and item.path.stem not in ON_BOTH_STORES:
                item.add_marker(pytest.mark.slow)
