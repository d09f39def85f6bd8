"""Logs for tests: every test that takes `make_log` or `log` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.postgres_server import PostgresServer

STORES = ["sqlite", "postgresql"]


@pytest.fixture(scope="session")
def template(postgres: PostgresServer) -> str:
    """A database with the schema; every test gets a copy."""
    url = postgres.create_database("penstock_template")
    penstock.open(url).close()
    return "penstock_template"


@pytest.fixture(params=STORES)
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a fresh log."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/log.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create_database(template=request.getfixturevalue("template"))
    yield url
    server.drop_database(url.rpartition("/")[2])


MakeLog = Callable[..., penstock.Log]


@pytest.fixture
def make_log(log_url: str) -> Iterator[MakeLog]:
    """Opens the test's log any number of times; closes them all at the end."""
    opened: list[penstock.Log] = []

    def make(**options: Any) -> penstock.Log:
        opened.append(penstock.open(log_url, **options))
        return opened[-1]

    yield make
    for log in opened:
        log.close()


@pytest.fixture
def log(make_log: MakeLog) -> penstock.Log:
    """The test's log, on the database's own time."""
    return make_log()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def clocked(make_log: MakeLog, clock: VirtualClock) -> penstock.Log:
    """The test's log on a virtual clock."""
    return make_log(clock=clock)


@pytest.fixture
def postgres_log_url(postgres: PostgresServer, template: str) -> Iterator[str]:
    """The URL of a fresh log on PostgreSQL, for tests of what only PostgreSQL has."""
    url = postgres.create_database(template=template)
    yield url
    postgres.drop_database(url.rpartition("/")[2])


@pytest.fixture
def postgres_log(postgres_log_url: str) -> Iterator[penstock.Log]:
    with penstock.open(postgres_log_url) as log:
        yield log
