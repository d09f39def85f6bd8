"""Pipelines while something around them fails: no event is blamed, and every row is there once."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import sinks
from tests.conformance.helpers import raw
from tests.engine.waiting import until
from tests.spark.piping import fill, pipeline, states, working
from tests.spark.test_pipeline import kept, make_table, numbers
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.timeout(300)


@pytest.mark.shows("S05")
def test_two_drivers_share_a_group(postgres_log: penstock.Log, postgres_log_url: str, spark: Any) -> None:
    make_table(postgres_log_url)
    one = pipeline(numbers, sinks.Table("numbers"), batch_size=50)
    rounds = 0

    def both_have_claimed() -> bool:
        nonlocal rounds
        fill(postgres_log, 100)
        rounds += 1
        until(lambda: states(postgres_log) == {"published": 100 * rounds}, 120)
        with raw(postgres_log_url) as sql:
            claimers = sql("select distinct claimed_by from penstock.leases where members > 0 order by 1")
        return [who for (who,) in claimers] == ["first", "second"]

    with working(postgres_log, spark, one, claimed_by="first"), working(postgres_log, spark, one, claimed_by="second"):
        until(both_have_claimed, 120)
    assert kept(postgres_log_url) == sorted(list(range(100)) * rounds)


def test_a_table_that_is_gone_for_a_while_blames_no_event(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make_table(postgres_log_url)
    one = pipeline(numbers, sinks.Table("numbers"), batch_size=50)
    with working(postgres_log, spark, one) as worker:
        fill(postgres_log, 50)
        until(lambda: states(postgres_log) == {"published": 50}, 120)
        with raw(postgres_log_url) as sql:
            sql("alter table numbers rename to gone")
        fill(postgres_log, 50)
        until(lambda: "There is no table 'numbers'" in caplog.text, 120)
        with raw(postgres_log_url) as sql:
            sql("alter table gone rename to numbers")
        until(lambda: states(postgres_log) == {"published": 100}, 120)
        counts = worker.counters.snapshot()
    assert (counts["failed"], counts["dead"]) == (0, 0) and counts["released"] > 0
    assert kept(postgres_log_url) == sorted([*range(50), *range(50)])


@pytest.mark.shows("S05")
def test_a_database_that_is_away_for_a_while_loses_nothing(spark: Any) -> None:
    with PostgresServer() as server, penstock.open(server.create_database()) as log:
        make_table(log.store.url)
        fill(log, 400)
        with working(log, spark, pipeline(numbers, sinks.Table("numbers"), batch_size=50, lease_seconds=5)) as worker:
            until(lambda: worker.counters.snapshot()["published"] > 0, 120)
            server.kill()
            server.start()
            until(lambda: _published(log) == 400, 120)
            counts = worker.counters.snapshot()
        assert kept(log.store.url) == list(range(400))
    assert (counts["failed"], counts["dead"]) == (0, 0)


def _published(log: penstock.Log) -> int:
    try:
        return states(log).get("published", 0)
    except penstock.StoreUnavailable:
        return 0
