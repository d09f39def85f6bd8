"""What recording and reading cost: the leases that are new, and the rows that are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.log_steps import statements
from tests.support.postgres_server import PostgresServer
from tests.support.query_plans import plan_nodes, read_rows, scans
from tests.support.raw_sql import raw

pytestmark = pytest.mark.shows("O10")
GROUPS, LEASES, NEW = 1_000, 100, 20


def fill(sql: Any, kind: str) -> None:
    """Make a thousand groups with a hundred leases each, all counted but the last one of a few groups."""
    numbers = "generate_series(%s::int, %s::int) as n(n)"
    if kind == "sqlite":
        numbers = "(with recursive n(n) as (select %s union all select n + 1 from n where n < %s) select n from n) n"
    columns = (
        "stream, ordering, keyed, lanes, starts, floor, on_dead, lease_seconds, max_attempts, base_seconds, factor,"
        " cap_seconds, jitter, created_at"
    )
    sql(
        f"insert into penstock.groups (group_name, {columns})"
        f" select 'g' || n.n, {columns} from penstock.groups, {numbers} where group_name = 'g'",
        2,
        GROUPS,
    )
    sql(
        "insert into penstock.leases (group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at,"
        " attempts, members, low, high, fresh, total, outcome, upto, ended_at, published)"
        " select g.group_id, 0, 1, 1, n.n, 'w', g.created_at, g.created_at, 1, 1, n.n - 1, n.n, (1 = 1), n.n,"
        f" 'settled', n.n, g.created_at, 1 from {numbers} cross join penstock.groups g order by n.n, g.group_id",
        1,
        LEASES,
    )
    sql(
        "insert into penstock.metric_mark (group_id, upto, lanes)"
        " select group_id, max(id) - case when group_id <= %s then 1 else 0 end, 1 from penstock.leases"
        " group by group_id",
        NEW,
    )


@pytest.fixture(scope="module")
def many(postgres: PostgresServer) -> Iterator[tuple[penstock.Log, psycopg.Connection[Any]]]:
    url = postgres.create_database()
    with penstock.open(url) as log, raw(url) as sql:
        log.create_group("orders", "g")
        sql("alter table penstock.leases disable trigger born_open")
        sql("drop index penstock.leases_range")  # takes most of the time, and is not asked here
        fill(sql, "postgresql")
        sql("alter table penstock.leases enable always trigger born_open")
        sql("vacuum analyze penstock.leases")
        yield log, sql.connection
    postgres.drop_database(url.rpartition("/")[2])


def explained(log: penstock.Log, sql: psycopg.Connection[Any], block: str, **params: Any) -> list[dict[str, Any]]:
    text = "explain (analyze, format json) " + log.store.blocks[block]
    row = sql.execute(text, params, prepare=False).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return list(plan_nodes(row[0][0]["Plan"]))


@pytest.mark.shows("K38")
def test_a_round_looks_at_new_leases_only(many: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    log, sql = many
    plan = explained(log, sql, "metric.uncounted", ids=None, most=500)
    assert ("Seq Scan", "leases") not in scans(plan)
    # a group's last lease has a lower id than the others' last but one, which come with it
    assert read_rows(plan, "leases") <= 2 * NEW
    one = explained(log, sql, "metric.uncounted", ids=[7], most=20_000)
    assert ("Seq Scan", "leases") not in scans(one) and read_rows(one, "leases") <= 2


@pytest.mark.shows("K33")
def test_a_series_reads_the_rows_of_its_group_and_time(many: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    """Fifty groups, two days of minutes."""
    log, sql = many
    sql.execute(
        "insert into penstock.metric (group_id, at, seconds, published)"
        " select g, t, 60, 1 from generate_series(1, 50) g,"
        " generate_series(now() - interval '2 days', now(), interval '1 minute') t"
    )
    sql.execute("analyze penstock.metric")
    row = sql.execute("select now() - interval '1 hour', now()").fetchone()
    assert row is not None
    window = {"since": row[0], "until": row[1], "step": 60}
    plan = explained(log, sql, "series.group", group_id=7, **window)
    assert ("Seq Scan", "metric") not in scans(plan) and read_rows(plan, "metric") <= 61
    lines = explained(log, sql, "series.published", **window)
    assert ("Seq Scan", "metric") not in scans(lines) and read_rows(lines, "metric") <= 50 * 61
    oldest = explained(log, sql, "fold.oldest", seconds=60)
    assert read_rows(oldest, "metric") <= 1


def test_new_leases_only_on_sqlite(tmp_path: Path) -> None:
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.create_group("orders", "g")
        with raw(log.store.url) as sql:
            sql("drop trigger penstock_leases_born")
            fill(sql, "sqlite")
            for block, params in (
                ("metric.uncounted", {"ids": None, "most": 500}),
                ("series.group", {"group_id": 1, "since": 0, "until": 1, "step": 60}),
                ("series.stream", {"stream": "orders", "since": 0, "until": 1, "step": 60}),
                ("series.published", {"since": 0, "until": 1, "step": 60}),
            ):
                plan = sql.connection.execute(f"explain query plan {log.store.blocks[block]}", params).fetchall()
                tables = ("SCAN penstock_metric", "SCAN penstock_leases", "SCAN l", "SCAN x")
                scanned = [line[-1] for line in plan if line[-1] in tables]
                assert not scanned, block
                found = "\n".join(line[-1] for line in plan)
                if block == "metric.uncounted":
                    assert "penstock_leases_latest (group_id=? AND lanes=? AND lane=? AND rowid>?)" in found


@pytest.mark.shows("K38")
def test_a_round_runs_as_many_statements_for_many_groups_as_for_few(clocked: penstock.Log, clock: VirtualClock) -> None:
    asked = []
    for many in (range(3), range(3, 40)):
        clocked.append_many("orders", [{"payload": 1, "type": "t"} for _ in range(3)])
        for number in many:
            clocked.create_group("orders", f"g{number}", start="beginning")
        for number in range(many.stop):
            lease = clocked.claim("orders", f"g{number}", limit=2, claimed_by="w")
            assert lease is not None
            lease.settle()
        clock.advance(3600)
        with statements(clocked) as ran:
            assert clocked.record_metrics()
        asked.append(sum(ran.values()))
    assert asked[0] <= asked[1] <= asked[0] + 3 and asked[1] < 45, "it grows with the groups"
    done = clocked.sparklines(since=clock.now() - timedelta(hours=3), points=3)
    assert len(done) == 40 and sum(sum(one or 0 for one in line) for line in done.values()) == 2 * (3 + 40)


def test_a_round_that_is_not_due_asks_once(clocked: penstock.Log) -> None:
    clocked.record_metrics()
    with statements(clocked) as ran:
        assert not clocked.record_metrics()
    assert sum(ran.values()) == 1


def test_a_log_without_work_writes_no_rows(clocked: penstock.Log, clock: VirtualClock) -> None:
    for number in range(10):
        clocked.create_group("orders", f"g{number}")
    for _ in range(5):
        clocked.record_metrics()
        clock.advance(60)
    with raw(clocked.store.url) as sql:
        assert sql("select count(*) from penstock.metric") == [(0,)]
        assert sql("select count(*) from penstock.metric_round") == [(5,)]
