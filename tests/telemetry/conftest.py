"""A running service over the test's log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from tests.support.http_service import Service, serving


@pytest.fixture
def service(log: penstock.Log) -> Iterator[Service]:
    with serving(log) as running:
        yield running
