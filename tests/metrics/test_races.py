"""Recording beside prune, beside other recorders, and with the rights of a worker; on PostgreSQL."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

import penstock
from penstock.log import prune
from tests.support.raw_sql import raw
from tests.support.roles import role_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.shows("O10")


def work(log: penstock.Log, leases: int) -> None:
    for _ in range(leases):
        lease = log.claim("orders", "g", limit=1, claimed_by="w")
        assert lease is not None
        lease.settle()


def published(log: penstock.Log) -> int:
    now = datetime.now(UTC)
    points = log.series("orders", "g", since=now - timedelta(minutes=5), until=now + timedelta(seconds=5)).points
    return sum(one.published or 0 for one in points)


@pytest.fixture
def orders(postgres_log: penstock.Log) -> penstock.Log:
    postgres_log.create_group("orders", "g")
    postgres_log.append_many("orders", [{"payload": n, "type": "t"} for n in range(30)])
    return postgres_log


def test_a_prune_in_the_middle_of_a_round_counts_nothing_twice(orders: penstock.Log) -> None:
    """The round has read leases that the prune removes; the prune waits, and sees that they are counted."""
    work(orders, 10)
    pruning = threading.Thread(target=lambda: orders.prune("orders", upto=10_000))

    def meanwhile(when: str, block: str) -> None:
        if (when, block) == ("after", "metric.uncounted") and not pruning.ident:
            pruning.start()
            waits = (
                "select count(*) from pg_stat_activity"
                " where wait_event_type = 'Lock' and position('prune_leases' in query) > 0"
            )
            with raw(orders.store.url) as sql:
                wait_until(lambda: sql(waits) == [(1,)], "the prune to wait")

    orders.store.hook = meanwhile
    assert orders.record_metrics()
    orders.store.hook = None
    pruning.join()
    assert published(orders) == 10
    with raw(orders.store.url) as sql:
        assert sql("select count(*) from penstock.leases") == [(1,)]
        sql("update penstock.metric_turn set sampled_at = null")
    orders.record_metrics()
    assert published(orders) == 10


def test_a_round_in_the_middle_of_a_prune_leaves_it_to_the_prune(
    orders: penstock.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(orders, 10)
    recorded: list[bool] = []

    def meanwhile(when: str, block: str) -> None:
        if (when, block) == ("after", "prune.leases") and not recorded:
            with penstock.open(orders.store.url) as other:
                recorded.append(other.record_metrics())

    monkeypatch.setattr(prune, "record_metrics", SimpleNamespace(record=lambda store: False))
    orders.store.hook = meanwhile
    orders.prune("orders", upto=10_000)
    orders.store.hook = None
    assert recorded == [False]
    with raw(orders.store.url) as sql:
        assert sql("select count(*) from penstock.leases") == [(1,)]
    assert published(orders) == 10
    assert orders.record_metrics()
    assert published(orders) == 10


def test_many_record_work_and_prune_at_once(orders: penstock.Log) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def keep(do: str) -> None:
        try:
            with penstock.open(orders.store.url) as log, raw(orders.store.url) as sql:
                while not stop.is_set():
                    if do == "prune":
                        log.prune("orders", upto=10_000)
                    else:
                        sql("update penstock.metric_turn set sampled_at = sampled_at - interval '1 minute'")
                        log.record_metrics()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=keep, args=(do,)) for do in ("prune", "record", "record")]
    for thread in threads:
        thread.start()
    for _ in range(6):
        orders.append_many("orders", [{"payload": n, "type": "t"} for n in range(15)])
        work(orders, 15)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert published(orders) == 90


@pytest.mark.shows("X10")
def test_a_worker_records_and_a_reader_reads(orders: penstock.Log) -> None:
    with role_of("worker", orders.store.url) as (url, _), penstock.open(url) as log:
        work(log, 3)
        assert log.record_metrics()
        with raw(orders.store.url) as sql:  # as if it were three days later
            sql("update penstock.metric_turn set sampled_at = null, folded_at = null")
            sql(
                "insert into penstock.metric (group_id, at, seconds, published)"
                " select group_id, date_trunc('minute', now() - interval '3 days'), 60, 4 from penstock.groups"
            )
        assert log.record_metrics()
    with role_of("reader", orders.store.url) as (url, _), penstock.open(url) as log:
        assert published(log) == 3 and len(log.sparklines()) == 1
        long = log.series("orders", "g", since=datetime.now(UTC) - timedelta(days=4), step_seconds=600)
        assert sum(one.published or 0 for one in long.points) >= 4
        with raw(orders.store.url) as sql:
            sql("update penstock.metric_turn set sampled_at = null")
        with pytest.raises(penstock.PermissionDenied):
            log.record_metrics()
