"""The horizon: no event is skipped, in whatever order transactions commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import penstock
from penstock.stores.postgres.transaction import unfold
from tests.support.hostile_writers import check_nothing_is_lost
from tests.support.log_steps import append_orders, claim_and_settle_all
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


@pytest.mark.shows("K09")
def test_a_lower_offset_that_commits_later_is_still_delivered(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    import psycopg

    log = postgres_log
    log.create_group("orders", "g")
    with psycopg.connect(postgres_log_url) as slow, psycopg.connect(postgres_log_url) as unrelated:
        unrelated.execute("create table elsewhere (id int)")  # an open write transaction that appends nothing
        first = log.append("orders", {"n": 1}, type="t", connection=slow)
        second = log.append("orders", {"n": 2}, type="t")
        assert second.offset > first.offset
        assert claim_and_settle_all(log) == [] and log.read("orders") == [], (
            "the second event was read before the first committed"
        )
        slow.commit()
        assert [event.offset for event in log.read("orders")] == [first.offset, second.offset]
        assert claim_and_settle_all(log) == [first.event_id, second.event_id], (
            "an unrelated transaction held events back"
        )
        rolled_back = log.append("orders", {"n": 3}, type="t", connection=slow)
        third = log.append("orders", {"n": 4}, type="t")
        assert claim_and_settle_all(log) == []
        slow.rollback()
        assert claim_and_settle_all(log) == [third.event_id] and rolled_back.offset < third.offset


@pytest.mark.shows("K09")
def test_an_append_after_a_rolled_back_savepoint_still_holds_the_horizon(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    import psycopg

    log = postgres_log
    log.create_group("orders", "g")
    with psycopg.connect(postgres_log_url) as slow:
        slow.execute("savepoint a")
        log.append("orders", {"n": 0}, type="t", connection=slow)
        slow.execute("rollback to savepoint a")  # removes the announcement
        other = log.append("orders", {"n": 1}, type="t")
        assert claim_and_settle_all(log) == [other.event_id]
        held = log.append("orders", {"n": 2}, type="t", connection=slow)
        later = log.append("orders", {"n": 3}, type="t")
        assert claim_and_settle_all(log) == []
        slow.commit()
        assert claim_and_settle_all(log) == [held.event_id, later.event_id]


@pytest.mark.shows("K09")
@pytest.mark.timeout(300)
def test_hostile_writers_lose_nothing(make_log: MakeLog, log_url: str) -> None:
    """Slow, rolled-back and savepoint transactions, with a reader and a group; the long run is in tests/prove."""
    check_nothing_is_lost(make_log, log_url, writers=8, rounds=60, most=12)


@pytest.mark.shows("K09")
def test_an_announced_offset_is_restored_from_31_bits() -> None:
    for last in (0, 5, 2**31 - 1, 2**31, 2**31 + 7, 2**40 + 3):
        for bound in (last, max(0, last - 1), max(0, last - 1000), last + 1, last + 1000):
            assert unfold(bound & (2**31 - 1), last) == bound, "announced just now, or long ago"


@pytest.mark.shows("K09")
def test_concurrent_reading_skips_no_event_on_either_store(log: penstock.Log, tmp_path: Path) -> None:
    ids = append_orders(log, 25)
    seen, after = [], 0
    while events := log.read("orders", after=after, limit=10):
        seen += [event.event_id for event in events]
        after = events[-1].offset
    assert seen == ids and log.read("elsewhere") == [] and tmp_path.exists()


@pytest.mark.shows("K20")
@pytest.mark.parametrize("limit", [10, 1_000])
def test_the_first_delayed_event_is_not_early_when_it_commits_during_a_claim(
    postgres_log: penstock.Log, postgres_log_url: str, limit: int
) -> None:
    import psycopg

    postgres_log.create_group("orders", "g")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with psycopg.connect(postgres_log_url) as slow:
        postgres_log.append("orders", {"n": 1}, type="t", available_at=tomorrow, connection=slow)

        def meanwhile(when: str, block: str) -> None:
            if (when, block) == ("after", "claim.look"):  # the claimer has seen no delayed event …
                slow.commit()  # … and sees no announced append

        with penstock.open(postgres_log_url, hook=meanwhile) as claimer:
            assert claimer.claim("orders", "g", limit=limit, claimed_by="w") is None
    assert postgres_log.delivery("orders", "g", 1).state == "PENDING"


@pytest.mark.shows("K49")
def test_the_standbys_horizon_stays_below_unfinished_appends_while_a_circuit_is_open(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    import psycopg

    log = postgres_log
    log.create_group("orders", "g")
    log.append("orders", {"n": 1}, type="t")
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    lease.settle(released=[event.event_id for event in lease.events], unavailable="down")
    with psycopg.connect(postgres_log_url) as slow, raw(postgres_log_url) as sql:
        first = log.append("orders", {"n": 2}, type="t", connection=slow)
        log.append("orders", {"n": 3}, type="t")
        assert log.claim("orders", "g", claimed_by="w") is None
        ((told,),) = sql("select upto from penstock.standby_horizon")
        assert told < first.offset
