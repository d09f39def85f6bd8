"""Every clause of the pages as a test, on both stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.clauses.bench import Bench, bench
from penstock.testing.clauses.registry import Clause, clauses
from tests.support.logs import STORES
from tests.support.postgres_server import PostgresServer


@pytest.fixture(scope="module", params=STORES)
def shared_bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One scratch log for all clauses; each clause has its own stream."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('clauses')}/log.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.create_database()
    with bench(url) as made:
        yield made


@pytest.mark.shows("K51")
@pytest.mark.parametrize(
    "clause", [pytest.param(one, id=one.id, marks=pytest.mark.clause(one.id)) for one in clauses()]
)
def test_both_stores_keep_the_clause(clause: Clause, shared_bench: Bench) -> None:
    shared_bench.begin(clause.id)
    clause.check(shared_bench)


@pytest.mark.shows("K51")
def test_the_scratch_log_leaves_nothing_behind(postgres: PostgresServer, tmp_path: Path) -> None:
    import psycopg

    url = postgres.create_database()
    with bench(url) as made:
        made.begin("000-1")
        made.append()
    with psycopg.connect(url) as connection:
        found = connection.execute("select nspname from pg_namespace where nspname like 'penstock%'").fetchall()
    assert found == []
    with bench(f"sqlite:///{tmp_path}/absent.db") as made:
        made.append()
    assert list(tmp_path.iterdir()) == []
