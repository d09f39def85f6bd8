"""A browser, and a service that needs no login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.http.auth import NoAuth
from tests.support.browser import CHROMIUM, Chromium, Looker
from tests.support.http_service import Service, serving


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    if not Path(CHROMIUM).exists():
        pytest.skip("Chromium is not installed")
    made = Chromium()
    yield made
    made.close()


@pytest.fixture
def looker(chromium: Chromium) -> Iterator[Looker]:
    """Opens pages. A test fails if one of them complains: a violated policy, a script that fails, a missing file."""
    with chromium.at_work() as browser:
        made = Looker(browser)
        yield made
        made.close()
        assert made.complaints == []


@pytest.fixture
def site(log: penstock.Log) -> Iterator[Service]:
    """The service over the test's log; everybody here may do everything."""
    with serving(log, NoAuth()) as running:
        yield running


@pytest.fixture
def lite(tmp_path: object) -> Iterator[penstock.Log]:
    """A log on SQLite alone, for what happens in the browser."""
    with penstock.open(f"sqlite:///{tmp_path}/lite.db") as log:
        yield log


@pytest.fixture
def lite_site(lite: penstock.Log) -> Iterator[Service]:
    with serving(lite, NoAuth()) as running:
        yield running
