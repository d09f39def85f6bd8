"""Policies: what they remove by themselves, what they never touch, and what a round costs."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock.core import limits
from penstock.engine.rounds import rounds
from penstock.log.retention import apply as applying
from penstock.stores.base import Transaction
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all, state_by_event
from tests.support.logs import MakeLog
from tests.support.plain_archive import archive
from tests.support.raw_sql import raw
from tests.support.roles import role_of
from tests.support.true_stats import check_stats

HOUR = 3600.0


def apply(log: penstock.Log) -> int:
    """Apply policies until nothing is left to do; returns how many events went."""
    events = 0
    while True:
        done = log.apply_retention()
        events += done.events
        if not done.more:
            return events


@pytest.mark.shows("O05", "K48")
def test_old_events_leave_and_what_is_needed_stays(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.create_group("orders", "g")
    log.create_group("orders", "slow")
    ids = append_orders(log, 20)
    lease = log.claim("orders", "g", limit=20, claimed_by="w")
    assert lease is not None
    lease.settle(dead={ids[2]: "no"}, failed={ids[5]: "later"})
    claim_and_settle_all(log, group="slow", limit=20)
    policy = log.set_retention("orders", keep=HOUR)
    assert policy is not None and (policy.keep, policy.keep_dead, policy.waits_for) == (HOUR, None, None)
    assert apply(log) == 0, "removed what is young"
    clock.advance(HOUR + 1)
    assert log.set_retention("orders", keep=HOUR) is not None
    young = append_orders(log, 3)
    assert apply(log) == 18
    assert [one.event_id for one in log.read("orders")] == [ids[2], ids[5], *young]
    check_stats(log, clock.now())
    claim_and_settle_all(log)  # the retry succeeds
    clock.advance(limits.RETENTION_PASS_SECONDS[1])
    assert apply(log) == 1 and state_by_event(log)[ids[2]] == "DEAD"
    assert log.set_retention("orders", keep_dead=timedelta(hours=3)) is not None
    clock.advance(3 * HOUR)
    assert log.retention().streams[0].waits_for == "slow"
    claim_and_settle_all(log, group="slow")
    assert apply(log) == 4 and log.read("orders") == []
    check_stats(log, clock.now())
    assert log.set_retention("orders", keep="forever") is None and log.retention().streams == ()
    with pytest.raises(penstock.InvalidInput):
        log.set_retention("orders", keep_dead=5)
    for wrong in ({"keep": -1}, {"keep": HOUR, "keep_dead": 0}, {}):
        with pytest.raises(penstock.InvalidInput):
            log.set_retention("orders", **wrong)
    with pytest.raises(penstock.InvalidInput):
        log.set_retention("jobs:default:0:mail", keep=1)


@pytest.mark.shows("O05")
def test_only_what_is_archived_leaves_where_the_policy_says_so(
    clocked: penstock.Log, clock: VirtualClock, tmp_path: Path
) -> None:
    log = clocked
    append_orders(log, 10)
    log.set_retention("orders", keep=0, archive=str(tmp_path))
    clock.advance(1)
    assert apply(log) == 0 and log.retention().streams[0].waits_for == "archive"
    archive(log, "orders", tmp_path / "elsewhere")
    archive(log, "orders", tmp_path, upto=6)
    clock.advance(20)
    assert apply(log) == 6
    log.set_retention("orders", archive="none")
    assert apply(log) == 4


@pytest.mark.shows("O05")
def test_restored_events_stay_for_a_while(clocked: penstock.Log, clock: VirtualClock, tmp_path: Path) -> None:
    log = clocked
    append_orders(log, 10)
    archive(log, "orders", tmp_path)
    clock.advance(1)
    log.set_retention("orders", keep=0)
    assert apply(log) == 10
    assert log.restore("orders", after=2, upto=8, keep_days=1).events == 6
    append_orders(log, 2)
    clock.advance(2 * HOUR)
    assert apply(log) == 2, "restored events did not stay, or later ones did"
    clock.advance(86_400)
    assert apply(log) == 6 and log.read("orders") == []


@pytest.mark.shows("O05", "K48")
@pytest.mark.parametrize("seed", range(1))
def test_counts_and_leases_are_right_while_policies_remove_events(
    clocked: penstock.Log, clock: VirtualClock, seed: int, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, dice = clocked, random.Random(seed)
    monkeypatch.setattr(limits, "PRUNE_BATCH", 9)
    monkeypatch.setattr(limits, "RETENTION_LOOK_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(limits, "RETENTION_PASS_SECONDS", (50.0, 50.0))
    log.create_group("s", "plain", retry=penstock.Retry(base_seconds=1, jitter=0))
    log.create_group("s", "keyed", ordering="key", retry=penstock.Retry(base_seconds=1, jitter=0))
    log.set_retention("s", keep=100, keep_dead=500)
    for step in range(14):
        keys = [None, "x", "y"]
        log.append_many("s", [{"payload": n, "type": "t", "ordering_key": dice.choice(keys)} for n in range(12)])
        for group in ("plain", "keyed"):
            while (lease := log.claim("s", group, limit=dice.randrange(2, 12), claimed_by="w")) is not None:
                ids = [one.event_id for one in lease.events]
                bad = [one for one in ids if dice.random() < 0.1]
                lease.settle(dead=dict.fromkeys(bad[:1], "no"), failed=dict.fromkeys(bad[1:], "no"))
        if step == 8:
            log.rewind("s", "plain", to=log.end() - 30)
        clock.advance(20)
        apply(log)
        check_stats(log, clock.now())
    clock.advance(600)
    for group in ("plain", "keyed"):
        while not log.drained("s", group):
            claim_and_settle_all(log, "s", group)
            clock.advance(10)
    clock.advance(600)
    apply(log)
    clock.advance(60)
    apply(log)
    assert log.read("s") == [] or len(log.read("s")) == 0
    check_stats(log, clock.now())
    with raw(log_url) as sql:
        tables = ("events", "deliveries", "attempt_log", "range_actions")
        assert [sql(f"select count(*) from penstock.{name}")[0][0] for name in tables] == [0] * 4
        assert sql("select count(*) from penstock.leases")[0][0] <= 2 * 9, "leases without events are left"


@pytest.mark.shows("O05")
def test_a_round_with_nothing_to_do_looks_up_one_thing(make_log: MakeLog) -> None:
    from penstock.testing.crash import StatementCounter

    counter = StatementCounter()
    log = make_log(hook=counter)
    append_orders(log, 5)
    log.set_retention("orders", keep=HOUR)
    log.apply_retention()
    counter.reset()
    assert not log.apply_retention().more
    assert counter.blocks == ["policy.due"]


@pytest.mark.shows("O05")
def test_a_stream_in_trouble_does_not_keep_the_others(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = clocked
    for stream in ("a", "b"):
        log.append(stream, {}, type="t")
        log.set_retention(stream, keep=10)
        clock.advance(1)
    clock.advance(100)
    step = applying._step

    def troubled(tx: Transaction, stream: str) -> applying.Expired:
        if stream == "a":
            raise ValueError("locked for long")
        return step(tx, stream)

    monkeypatch.setattr(applying, "_step", troubled)
    with pytest.raises(ValueError, match="locked for long"):
        log.apply_retention()
    assert (len(log.read("a")), len(log.read("b"))) == (1, 0)


@pytest.mark.shows("O05")
def test_a_policy_is_found_by_its_time(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with psycopg.connect(postgres_log_url) as connection:
        connection.execute(
            "insert into penstock.retention (stream, keep, next_at, by, set_at) "
            "select 's' || n, 1, clock_timestamp() + interval '1 hour', 'me', clock_timestamp() "
            "from generate_series(1, 20000) n"
        )
        connection.execute("analyze penstock.retention")
        statement = postgres_log.store.blocks["policy.due"]
        plan = connection.execute(
            f"explain {statement}", {"now": "2026-01-01", "latest": "2040-01-01", "most": 10}
        ).fetchall()
    assert "retention_due" in str(plan) and "Seq Scan" not in str(plan), plan


@pytest.mark.shows("O05")
def test_engines_and_the_service_apply_policies(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_orders(clocked, 3)
    clocked.set_retention("orders", keep=0)
    clock.advance(1)
    for one in rounds(clocked, 0.0):
        one.next_at = 0.0
        one.tick()
    assert len(clocked.read("orders")) == 0


@pytest.mark.shows("O05", "K04")
def test_a_worker_applies_a_stored_policy_and_nothing_else(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    append_orders(postgres_log, 5)
    with role_of("worker", postgres_log_url) as (worker, _):
        check_worker(postgres_log, worker)


def check_worker(postgres_log: penstock.Log, worker: str) -> None:
    for statement in (
        "select penstock.expire_events('orders', 0, 100, '{}', clock_timestamp())",
        "select penstock.prune_range('orders', 0, 100, '{}', 100)",
        "select penstock.erase_event(gen_random_uuid(), '', '', '')",
        "update penstock.retention set keep = 0",
        "insert into penstock.archives (stream, place, low, high, complete_from, state, by, began_at) "
        "values ('orders', '/', 0, 9, 0, 'done', 'me', clock_timestamp())",
    ):
        with pytest.raises(psycopg.Error), psycopg.connect(worker) as connection:
            connection.execute(statement)
    postgres_log.set_retention("orders", keep=HOUR)
    with pytest.raises(psycopg.Error, match="policy"), psycopg.connect(worker) as connection:
        connection.execute(
            "select penstock.expire_events('orders', 0, 100, '{}', clock_timestamp() + interval '1 year')"
        )
    postgres_log.set_retention("orders", keep=0)
    with penstock.open(worker) as log:
        assert apply(log) == 5
