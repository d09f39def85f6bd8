"""What queries of the view `delivery` read when the backlog is long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import penstock
from tests.support.log_steps import claim_and_settle_all
from tests.support.postgres_server import PostgresServer
from tests.support.query_plans import plan_nodes, read_rows

pytestmark = pytest.mark.timeout(400)  # filling the large log takes most of it

EVENTS = 60_000
DONE = 3_000


@pytest.fixture(scope="module", params=["young", "vacuumed"])
def backlog(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """One group has finished 3,000 events and the rest is pending; another one finished all and was rewound."""
    url = postgres.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as sql:
        sql.execute("alter table penstock.events set (autovacuum_enabled = off)")
        sql.execute(
            """insert into penstock.events (stream, event_id, event_type, payload)
               select 'orders', gen_random_uuid(), 'order.' || mod(n, 5), '{}' from generate_series(1, %s) n""",
            (EVENTS,),
        )
        log.create_group("orders", "behind")
        for _ in range(DONE // 10):
            lease = log.claim("orders", "behind", limit=10, claimed_by="w")
            assert lease is not None
            lease.settle()
        log.create_group("orders", "rewound")
        claim_and_settle_all(log, group="rewound", limit=50_000)
        log.rewind("orders", "rewound", to="beginning")
        if request.param == "vacuumed":
            sql.execute("vacuum analyze")
        yield sql


def look(sql: psycopg.Connection[Any], group: str, rest: str) -> tuple[list[int], list[dict[str, Any]]]:
    """The offsets that a query returns, and its plan."""
    where = f"penstock.delivery where stream = 'orders' and group_name = '{group}' and {rest}"
    found = [row[0] for row in sql.execute(f'select "offset" from {where}').fetchall()]  # type: ignore[arg-type]
    row = sql.execute(f"explain (analyze, format json) select * from {where}").fetchone()  # type: ignore[arg-type]
    assert row is not None
    return found, list(plan_nodes(row[0][0]["Plan"]))


@pytest.mark.shows("K37")
@pytest.mark.parametrize("group", ["behind", "rewound"])
def test_a_limited_query_of_pending_deliveries_reads_little(backlog: psycopg.Connection[Any], group: str) -> None:
    found, plan = look(backlog, group, "state = 'PENDING' limit 20")
    assert len(found) == 20 and read_rows(plan, "events") <= 100, "the limit must end the scan, without a sort"


@pytest.mark.shows("K37")
@pytest.mark.parametrize(("group", "low"), [("behind", "(select min(cursor) from penstock.lane)"), ("rewound", "0")])
def test_the_oldest_pending_deliveries_are_found_without_reading_the_backlog(
    backlog: psycopg.Connection[Any], group: str, low: str
) -> None:
    """The plan does not know the order of lanes and ranges, so the query says how far to look, as documented."""
    rest = f'state = \'PENDING\' and "offset" <= {low} + 1000 order by "offset" limit 20'
    found, plan = look(backlog, group, rest)
    first = DONE + 1 if group == "behind" else 1
    assert found == list(range(first, first + 20)) and read_rows(plan, "events") <= 2_500


@pytest.mark.shows("K37")
def test_the_newest_finished_deliveries_of_a_lagging_group_are_found_quickly(backlog: psycopg.Connection[Any]) -> None:
    newest = list(range(DONE, DONE - 10, -1))
    found, plan = look(backlog, "behind", "state = 'PUBLISHED' order by \"offset\" desc limit 10")
    assert found == newest
    if backlog.execute("select last_analyze from pg_stat_user_tables where relname = 'events'").fetchone() != (None,):
        walked = [one for one in plan if one.get("Index Name") == "events_stream" and one["Actual Rows"] > EVENTS // 2]
        assert [one["Node Type"] for one in walked] == ["Index Only Scan"], "must skip in the index, without a sort"
    assert read_rows(plan, "leases") <= 1_000, "leases before the group's reach were read"
    most = "(select max(cursor) from penstock.lane where group_name = 'behind')"
    rest = f'state = \'PUBLISHED\' and "offset" <= {most} order by "offset" desc limit 10'
    found, plan = look(backlog, "behind", rest)
    assert found == newest and read_rows(plan, "events") <= DONE + 100
