"""The servers that other tests use."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support import postgres_binaries, unprivileged
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres_server import Binaries, PostgresServer, available_servers
from tests.support.waiting import wait_until


@pytest.fixture(params=available_servers(), ids=str)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(request.param) as server:
        yield server


def one(url: str, query: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_committed_rows_survive_kill_and_restart(server: PostgresServer) -> None:
    url = server.create_database()
    assert str(one(url, "SELECT version()")).startswith("PostgreSQL {}.{}".format(*server.version))
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")

    bystander = psycopg.connect(url)
    server.kill()
    with pytest.raises(psycopg.OperationalError):
        bystander.execute("SELECT 1")
    bystander.close()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)

    server.start()
    assert one(url, "SELECT answer FROM kept") == 42
    server.restart()
    assert one(url, "SELECT answer FROM kept") == 42


def test_stop_leaves_nothing_behind() -> None:
    server = PostgresServer(fsync=True, settings={"work_mem": "5MB"})
    with server:
        assert one(server.url(), "SHOW fsync") == "on"
        assert one(server.url(), "SHOW work_mem") == "5MB"
        assert one(server.url(), "SHOW max_connections") == "200"
        directory = Path(str(one(server.url(), "SHOW data_directory"))).parent
        assert directory.exists()
    assert not directory.exists()
    server.stop()


def test_a_database_can_be_created_from_a_template(postgres: PostgresServer, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    copy = postgres.create_database("a_copy", template=postgres_url.rpartition("/")[2])
    bystander = psycopg.connect(copy)
    bystander.execute("SELECT a FROM t")
    postgres.drop_database("a_copy")
    bystander.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(copy)


def test_a_killed_test_run_leaves_no_server() -> None:
    code = (
        "from tests.support.postgres_server import PostgresServer\n"
        "server = PostgresServer(); server.start(); print(server.url(), flush=True); input()"
    )
    root = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        directory = Path(str(one(url, "SHOW data_directory"))).parent
        run.kill()
    wait_until(lambda: not directory.exists(), "the server's files to be removed")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to give its binaries to another user")
def test_binaries_below_an_inaccessible_directory_are_copied(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    original = postgres_binaries.newest()
    installation = original.directory.parent
    shape = closed / installation.parent.name / installation.name
    unprivileged.copy_tree(installation, shape)
    libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
    if libraries.is_dir():
        unprivileged.copy_tree(libraries, closed / libraries.name)
    closed.chmod(0o700)
    with PostgresServer(Binaries(original.version, shape / "bin")) as server:
        assert one(server.url(), "SELECT 1") == 1


def test_pgbouncer_shares_server_connections(pgbouncer: PgBouncer) -> None:
    url = pgbouncer.url()
    connections = [psycopg.connect(url, autocommit=True) for _ in range(10)]
    try:
        pids = set()
        for connection in connections:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            pids.add(row[0])
        assert len(pids) < len(connections)
    finally:
        for connection in connections:
            connection.close()
