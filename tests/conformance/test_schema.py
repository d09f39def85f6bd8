"""The schema: numbered, resumable, refused if it is too new; and its use by plain PostgreSQL clients."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

import penstock
from penstock.stores import blocks
from penstock.stores.postgres import schema as postgres_schema
from penstock.stores.sqlite import schema as sqlite_schema
from penstock.testing import StatementCounter
from tests.support.forks import killed_in_child
from tests.support.log_steps import claim_and_settle_all
from tests.support.pgbouncer import PgBouncer
from tests.support.postgres_server import PostgresServer
from tests.support.raw_sql import raw

RELEASED = 6  # migrations of the first release


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without a schema."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_database()


def killed_at(url: str, number: int) -> bool:
    """Open the log in a child that kills itself before its n-th step; return whether it got that far."""
    seen = 0

    def hook(when: str, block: str) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return killed_in_child(lambda: penstock.open(url, hook=hook).close())


@pytest.mark.shows("K29")
def test_an_upgrade_killed_at_any_step_continues_there(empty_url: str) -> None:
    counter = StatementCounter()
    number, deaths = 1, 0
    while killed_at(empty_url, number):
        deaths += 1
        number += 7  # not every statement, because each death costs a process
    assert deaths > 5
    with penstock.open(empty_url, hook=counter) as log:
        assert counter.blocks == [], "the upgrade was not complete"
        log.append("orders", {}, type="t")
        log.create_group("orders", "g")
        assert len(claim_and_settle_all(log)) == 1
    dialect = "sqlite" if empty_url.startswith("sqlite") else "postgres"
    with raw(empty_url) as sql:
        versions = [row[0] for row in sql("select version from penstock.schema_version order by 1")]
    assert versions == [number for number, _, _ in blocks.migrations(dialect)]


@pytest.fixture
def released_url(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log of the first release with three events."""
    dialect = "sqlite" if empty_url.startswith("sqlite") else "postgres"
    everything = blocks.migrations(dialect)
    with monkeypatch.context() as released:
        released.setattr(blocks, "migrations", lambda *args, **options: everything[:RELEASED])
        script = sqlite_schema.script() if dialect == "sqlite" else postgres_schema.script("penstock")
    with raw(empty_url) as sql:
        run = sql.connection.executescript if dialect == "sqlite" else sql.connection.execute
        run(script)
        assert sql("select max(version) from penstock.schema_version") == [(RELEASED,)]
        for n in range(1, 4):
            names, values = ("created_at, ", "1, ") if dialect == "sqlite" else ("", "")
            sql(
                f"insert into penstock.events (stream, event_id, event_type, {names}payload) "
                f"values ('orders', %s, 't', {values}%s)",
                uuid.UUID(int=n),
                b"{}",
            )
    return empty_url


@pytest.mark.shows("K29")
def test_a_log_of_the_first_release_is_upgraded(released_url: str) -> None:
    everything = blocks.migrations("sqlite" if released_url.startswith("sqlite") else "postgres")
    assert [number for number, _, _ in everything] == list(range(1, len(everything) + 1)), (
        "a migration number is missing"
    )
    with penstock.open(released_url) as log:
        log.create_group("orders", "g")
        assert claim_and_settle_all(log) == [uuid.UUID(int=n) for n in range(1, 4)]
        assert {str(one.state) for one in log.deliveries("orders", "g")} == {"PUBLISHED"}
        assert [one.events for one in log.stats().streams] == [3]
        assert log.prune("orders", upto=log.end()).count == 3
    with raw(released_url) as sql:
        assert sql("select max(version) from penstock.schema_version") == [(len(everything),)]


@pytest.mark.shows("K29", "K35", "K46")
def test_deliveries_of_the_first_release_keep_their_history_and_their_attempts(released_url: str) -> None:
    """The first release recorded no success of rows and did not count attempts of earlier lives."""
    sqlite = released_url.startswith("sqlite")
    early, late, later = ("1", "2", "3") if sqlite else ("'2026-01-01'", "'2026-01-02'", "'2026-01-03'")
    first, second, none = ("'[0]'", "'[2]'", "'[]'") if sqlite else ("'{0}'", "'{2}'", "'{}'")

    with raw(released_url) as sql:

        def put(table: str, **columns: object) -> None:
            names = ", ".join(f'"{name}"' for name in columns)
            sql(f"insert into penstock.{table} ({names}) values ({', '.join(map(str, columns.values()))})")

        policy = dict(on_dead="'continue'", lease_seconds=60, max_attempts=3, base_seconds=1, factor=2, cap_seconds=9)
        place = dict(stream="'orders'", group_name="'g'", keyed="false", lanes=1, starts=first, floor=0, jitter=0)
        put("groups", **place, **policy, created_at=early)
        put("bindings", group_id=1, from_offset=0, created_at=early)
        # All three in one lease; the second fails …
        lease = dict(group_id=1, lane=0, lanes=1, claimed_by="'w'", expires_at=later, holes=none, open_before=none)
        ended = dict(outcome="'settled'", answer=none)
        whole = dict(binding=1, low=0, high=3, upto=3, members=3, total=3, attempts=1, fresh="true")
        put("leases", **lease, **ended, **whole, token=7, claimed_at=early, ended_at=early)
        row = dict(group_id=1, stream="'orders'", group_name="'g'", event_type="'t'", state="'PENDING'")
        ids = [f'(select event_id from penstock.events where "offset" = {n})' for n in (2, 3)]
        now = dict(available_at=early, updated_at=early)
        put("deliveries", **row, **now, offset=2, event_id=ids[0], bucket=2, attempts=1, failures=1)
        line = dict(group_id=1, attempt=1)
        put("attempt_log", **line, offset=2, failures=1, outcome="'failed'", claimed_at=early, ended_at=early, lease=1)
        # … the second succeeds, as a row …
        listed = dict(binding=0, offsets=second, members=1, attempts=0, fresh="false")
        put("leases", **lease, **ended, **listed, token=8, claimed_at=late, ended_at=late)
        held = f"claimed_at = {late}, claimed_by = 'w', lease = 2, attempts = 2"
        sql(f"update penstock.deliveries set state = 'CLAIMED', {held}")
        held = "claimed_at = null, claimed_by = null, lease = null"
        sql(f"update penstock.deliveries set state = 'PUBLISHED', {held}, published_at = {late}")
        # … and the third is replayed.
        put("deliveries", **row, **now, offset=3, event_id=ids[1], bucket=3, replays=1)
        put("attempt_log", **line, offset=3, failures=0, outcome="'replayed'", ended_at=late)
    with penstock.open(released_url) as log:
        found = [log.delivery("orders", "g", n) for n in (1, 2, 3)]
        assert [(one.attempts, one.total_attempts) for one in found] == [(1, 1), (2, 2), (0, 1)]
        assert [[step.outcome for step in one.history] for one in found] == [
            ["claimed", "published"],
            ["claimed", "failed", "claimed", "published"],
            ["claimed", "published", "replayed"],
        ]
        again = log.claim("orders", "g", claimed_by="w")
        assert again is not None and [(one.offset, one.total_attempts) for one in again.events] == [(3, 2)]


@pytest.mark.shows("K29")
def test_a_newer_schema_is_refused_with_advice(log: penstock.Log, log_url: str) -> None:
    with raw(log_url) as sql:
        sql("insert into penstock.schema_version (version, name) values (9999, 'from the future')")
        with pytest.raises(penstock.SchemaTooNew, match="9999") as caught:
            penstock.open(log_url)
        assert "pip install --upgrade" in caught.value.hint


@pytest.mark.shows("K29")
def test_a_role_that_may_not_create_gets_advice(postgres: PostgresServer) -> None:
    import psycopg

    url = postgres.create_database()
    with psycopg.connect(url, autocommit=True) as owner:
        role = f"nobody_{uuid.uuid4().hex[:12]}"
        owner.execute(f"create role {role} login")
    other = url.replace("postgres@", f"{role}@")
    with pytest.raises(penstock.SchemaMissing) as caught:
        penstock.open(other)
    assert "penstock init" in caught.value.hint
    with pytest.raises(penstock.SchemaMissing):
        penstock.open(url, migrate=False).append("orders", {}, type="t")


@pytest.mark.shows("K29")
def test_the_printed_script_makes_the_same_schema(postgres: PostgresServer) -> None:
    import psycopg

    from penstock.stores.postgres.schema import script

    url = postgres.create_database()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(script("penstock"))  # type: ignore[arg-type]
    counter = StatementCounter()
    with penstock.open(url, hook=counter) as log:
        assert counter.blocks == []
        log.append("orders", {}, type="t")


def test_two_logs_in_one_database_are_independent(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    with penstock.open(url) as first, penstock.open(f"{url}?schema=second") as second:
        first.append("orders", {"n": 1}, type="t")
        assert second.read("orders") == []
        second.append("orders", {"n": 2}, type="t")
        second.create_group("orders", "g")
        assert len(claim_and_settle_all(second)) == 1 and len(first.read("orders")) == 1
        assert second.stats().groups[0].published == 1


@pytest.mark.shows("K34")
def test_everything_works_through_pgbouncer_in_transaction_mode(
    pgbouncer: PgBouncer, postgres: PostgresServer, template: str
) -> None:
    name = postgres.create_database(template=template).rpartition("/")[2]
    with penstock.open(pgbouncer.url(name)) as log:
        ids = log.append_many("orders", [{"payload": {"n": n}, "type": "t"} for n in range(500)]).event_ids
        log.create_group("orders", "g", ordering="key", retry=penstock.Retry(base_seconds=0, jitter=0))
        failed_once = False
        seen = []
        while (lease := log.claim("orders", "g", limit=40, claimed_by="w")) is not None:
            lease.extend()
            failed = {} if failed_once else {lease.events[0].event_id: "no"}
            failed_once = True
            seen += [event.event_id for event in lease.events if event.event_id not in failed]
            lease.settle(failed=failed, emit=[] if failed else [{"stream": "out", "payload": {}, "type": "t"}])
        assert sorted(map(str, seen)) == sorted(map(str, ids))
        import psycopg

        with psycopg.connect(pgbouncer.url(name), prepare_threshold=None) as caller:
            log.append("orders", {}, type="t", connection=caller)
            caller.commit()
        assert len(claim_and_settle_all(log)) == 1


@pytest.mark.shows("K34")
def test_the_sql_function_appends_in_any_clients_transaction(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    import psycopg

    log = postgres_log
    with psycopg.connect(postgres_log_url) as other:
        call = "select * from penstock.append('orders', 'order.created', '{\"n\": 1}'::jsonb, ordering_key => 'c-1', "
        offset, event_id, duplicate = other.execute(call + 'headers => \'{"a": "b"}\')').fetchone() or ()
        assert duplicate is False and log.read("orders") == []
        other.rollback()
        assert log.read("orders") == []
        one = penstock.event_id("sql")
        for expected in (False, True):
            row = other.execute(call + "event_id => %s)", (one,)).fetchone()
            assert row is not None and row[1:] == (one, expected)
        other.commit()
        (event,) = log.read("orders")
        assert (event.json(), event.ordering_key, event.event_id) == ({"n": 1}, "c-1", one)
        bucket = other.execute("select bucket from penstock.events").fetchone()
        log.append("orders", {"n": 1}, type="t", ordering_key="c-1")
        assert other.execute("select distinct bucket from penstock.events").fetchall() == [bucket], "hashes differ"
        other.commit()
        for bad in (
            "penstock.append('a b', 't', '{}'::jsonb)",
            "penstock.append('s', '', '{}'::jsonb)",
            "penstock.append(null, 't', '{}'::jsonb)",
            "penstock.append('s', 't', null::jsonb)",
            "penstock.append('s', 't', '{}'::jsonb, ordering_key => repeat('k', 600))",
            "penstock.append('s', 't', '{}'::jsonb, headers => '{\"a\": 1}')",
            f"penstock.append('orders', 't', '{{}}'::jsonb, event_id => '{one}')",
        ):
            with pytest.raises(psycopg.Error, match="penstock: "):
                other.execute(f"select {bad}")  # type: ignore[arg-type]
            other.rollback()
    log.create_group("orders", "g")
    assert len(claim_and_settle_all(log)) == 2 and offset and event_id
