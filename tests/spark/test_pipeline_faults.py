"""Pipelines while something around them fails: no failure is counted, and every row is written once."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import sinks
from tests.support.declarations import pipeline
from tests.support.log_steps import append_orders_of_two_types, count_by_state
from tests.support.postgres_server import PostgresServer
from tests.support.raw_sql import raw
from tests.support.spark_pipeline import create_numbers_table, running_pipeline, select_offset_and_n, stored_numbers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.mark.shows("S05")
def test_two_drivers_share_a_group(postgres_log: penstock.Log, postgres_log_url: str, spark: Any) -> None:
    create_numbers_table(postgres_log_url)
    one = pipeline(select_offset_and_n, sinks.Table("numbers"), batch_size=50)
    rounds = 0

    def both_have_claimed() -> bool:
        nonlocal rounds
        append_orders_of_two_types(postgres_log, 100)
        rounds += 1
        wait_until(lambda: count_by_state(postgres_log) == {"published": 100 * rounds}, seconds=120)
        with raw(postgres_log_url) as sql:
            claimers = sql("select distinct claimed_by from penstock.leases where members > 0 order by 1")
        return [who for (who,) in claimers] == ["first", "second"]

    with (
        running_pipeline(postgres_log, spark, one, claimed_by="first"),
        running_pipeline(postgres_log, spark, one, claimed_by="second"),
    ):
        wait_until(both_have_claimed, seconds=120)
    assert stored_numbers(postgres_log_url) == sorted(list(range(100)) * rounds)


def test_a_missing_table_counts_no_failure(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    create_numbers_table(postgres_log_url)
    one = pipeline(select_offset_and_n, sinks.Table("numbers"), batch_size=50)
    with running_pipeline(postgres_log, spark, one) as worker:
        append_orders_of_two_types(postgres_log, 50)
        wait_until(lambda: count_by_state(postgres_log) == {"published": 50}, seconds=120)
        with raw(postgres_log_url) as sql:
            sql("alter table numbers rename to gone")
        append_orders_of_two_types(postgres_log, 50)
        wait_until(lambda: "There is no table 'numbers'" in caplog.text, seconds=120)
        with raw(postgres_log_url) as sql:
            sql("alter table gone rename to numbers")
        wait_until(lambda: count_by_state(postgres_log) == {"published": 100}, seconds=120)
        counts = worker.counters.snapshot()
    assert (counts["failed"], counts["dead"]) == (0, 0) and counts["released"] > 0
    assert stored_numbers(postgres_log_url) == sorted([*range(50), *range(50)])


@pytest.mark.shows("S05")
def test_a_lost_database_loses_no_event(spark: Any) -> None:
    with PostgresServer() as server, penstock.open(server.create_database()) as log:
        create_numbers_table(log.store.url)
        append_orders_of_two_types(log, 400)
        with running_pipeline(
            log, spark, pipeline(select_offset_and_n, sinks.Table("numbers"), batch_size=50, lease_seconds=5)
        ) as worker:
            wait_until(lambda: worker.counters.snapshot()["published"] > 0, seconds=120)
            server.kill()
            server.start()
            wait_until(lambda: _published(log) == 400, seconds=120)
            counts = worker.counters.snapshot()
        assert stored_numbers(log.store.url) == list(range(400))
    assert (counts["failed"], counts["dead"]) == (0, 0)


def _published(log: penstock.Log) -> int:
    try:
        return count_by_state(log).get("published", 0)
    except penstock.StoreUnavailable:
        return 0
