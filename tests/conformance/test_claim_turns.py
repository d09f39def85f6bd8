"""Claimers of a group take turns, and an ended lease holds its counts."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders
from tests.support.raw_sql import raw


def counts(url: str) -> list[tuple[Any, ...]]:
    """Outcome and counters of every lease, oldest first."""
    with raw(url) as sql:
        return sql("select outcome, published, failed, dead, released, run from penstock.leases order by id")


@pytest.mark.shows("K40")
def test_a_foreign_lock_cannot_block_the_claims_of_a_group(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    """Any role can take an advisory lock, but only workers can lock a row of `group_locks`."""
    append_orders(postgres_log, 1)
    group = postgres_log.create_group("orders", "g")
    with psycopg.connect(postgres_log_url) as stranger:
        for relation in ("leases", "groups", "group_locks", "events"):
            stranger.execute(
                "select pg_advisory_lock(%s::regclass::oid::bigint::bit(32)::int, %s)",
                (f"penstock.{relation}", group.group_id),
            )
        lease = postgres_log.claim("orders", "g", claimed_by="w")
        assert lease is not None
        lease.settle()
        role = f"stranger_{uuid.uuid4().hex[:12]}"
        stranger.execute(f"create role {role} login")
        stranger.execute(f"set role {role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute("select 1 from penstock.group_locks for update")
        stranger.rollback()


@pytest.mark.shows("K08")
def test_no_default_isolation_level_hands_an_event_out_twice(postgres_log_url: str) -> None:
    """A claim of one statement uses the server's default isolation level. With a snapshot from before its turn it would
    not see what was handed out meanwhile."""
    with psycopg.connect(postgres_log_url, autocommit=True) as owner:
        name = owner.info.dbname
        owner.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
    with penstock.open(postgres_log_url) as log, psycopg.connect(postgres_log_url) as holder:
        append_orders(log, 9)
        log.create_group("orders", "g")
        first = [log.claim("orders", "g", limit=1, claimed_by="w") for _ in range(2)]  # the second is one statement
        holder.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        holder.execute("select 1 from penstock.group_locks for update")
        with ThreadPoolExecutor(4) as threads:
            waiting = [threads.submit(log.claim, "orders", "g", limit=1, claimed_by=f"w{n}") for n in range(4)]
            with psycopg.connect(postgres_log_url, autocommit=True) as watcher:
                while len(watcher.execute("select 1 from pg_locks where not granted").fetchall()) < 4:
                    pass
            holder.rollback()
            leases = [*first, *(one.result() for one in waiting)]
    offsets = [event.offset for lease in leases if lease is not None for event in lease.events]
    assert len(offsets) == len(set(offsets)) == 6


@pytest.mark.shows("K40")
def test_claimers_and_operators_of_a_group_take_turns(postgres_log: penstock.Log) -> None:
    """The lock is a row of this group; claims of other groups and plain settles do not wait for it."""
    append_orders(postgres_log, 2)
    for name in ("g", "h"):
        postgres_log.create_group("orders", name)
    before = postgres_log.claim("orders", "g", limit=1, claimed_by="w")
    assert before is not None
    url = postgres_log.store.url
    with psycopg.connect(url) as holder:
        holder.execute(
            "select 1 from penstock.group_locks l join penstock.groups g using (group_id) "
            "where g.group_name = 'g' for update of l"
        )
        before.settle()
        other = postgres_log.claim("orders", "h", claimed_by="w")
        assert other is not None and len(other) == 2
        with psycopg.connect(url, autocommit=True) as watcher, ThreadPoolExecutor(1) as thread:
            late = thread.submit(postgres_log.claim, "orders", "g", claimed_by="late")
            waiting = (
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            )
            while watcher.execute(waiting).fetchone() != (1,):
                assert not late.done(), "the claim did not wait for its turn"
            holder.rollback()
            lease = late.result(30)
            assert lease is not None and len(lease) == 1


@pytest.mark.shows("K31")
def test_a_lease_counts_its_outcomes(clocked: penstock.Log, clock: VirtualClock, log_url: str) -> None:
    ids = append_orders(clocked, 20)
    clocked.create_group("orders", "g", retry=penstock.Retry(max_attempts=3, base_seconds=1, jitter=0))
    whole = clocked.claim("orders", "g", limit=5, claimed_by="w", run=7)
    assert whole is not None
    assert whole.settle() == whole.settle(), "the answers differ"
    mixed = clocked.claim("orders", "g", limit=6, claimed_by="w")
    assert mixed is not None
    mixed.settle(failed={ids[5]: "no"}, dead={ids[6]: "never"}, released=[ids[7], ids[10]])
    given_back = clocked.claim("orders", "g", limit=1, claimed_by="w")
    assert given_back is not None
    given_back.release()
    lost = clocked.claim("orders", "g", limit=1, claimed_by="w", lease_seconds=5)
    assert lost is not None
    clock.advance(6)
    open_one = clocked.claim("orders", "g", limit=1, claimed_by="w")
    assert open_one is not None
    clocked.rewind("orders", "g", to="beginning")
    assert counts(log_url) == [
        ("settled", 5, 0, 0, 0, 7),
        ("settled", 2, 1, 1, 2, None),
        ("released", 0, 0, 0, 1, None),
        ("expired", 0, 1, 0, 0, None),
        ("rewound", 0, 0, 0, 1, None),
    ]


@pytest.mark.shows("K31")
def test_a_range_without_a_match_counts_no_outcomes(log: penstock.Log, log_url: str) -> None:
    log.append_many("orders", [{"payload": {}, "type": "noise"} for _ in range(1_100)])
    log.create_group("orders", "g", types=["signal"])
    assert log.claim("orders", "g", claimed_by="w") is None
    assert counts(log_url) == [("settled", 0, 0, 0, 0, None)]


@pytest.mark.shows("K29")
def test_the_claim_query_returns_every_column_of_a_group(log: penstock.Log) -> None:
    """A new column of groups must also be added to the query of claims."""
    log.create_group("orders", "g")
    with log.store.transaction() as tx:
        found = tx.one("group.find", stream="orders", group_name="g", lease=None)
        (lane,) = tx.look("claim.look", stream="orders", group_name="g")
        assert found is not None and set(found._fields) <= set(lane._fields)


@pytest.mark.shows("K40", "K42")
def test_waiting_for_a_recreated_group_gives_the_new_one_or_unknown_group(log: penstock.Log) -> None:
    """Claimers and an operator wait while a group is recreated; nobody works on the new one out of turn."""
    log.append("orders", {}, type="t")
    log.create_group("orders", "g")
    over, refused, done = threading.Event(), list[penstock.PenstockError](), Counter[str]()

    def again_and_again(name: str, call: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                call()
            except penstock.PenstockError as error:
                if error.code != "unknown_group":
                    refused.append(error)
            else:
                done[name] += 1

    def claim() -> None:
        if (lease := log.claim("orders", "g", limit=1, claimed_by="w")) is not None:
            lease.release()

    verbs = {"claim": claim, "again": claim, "pause": lambda: log.pause("orders", "g", by="me")}
    threads = [threading.Thread(target=again_and_again, args=pair) for pair in verbs.items()]
    for thread in threads:
        thread.start()
    made = 0
    while made < 40 or not done.keys() >= verbs.keys():
        try:
            log.delete_group("orders", "g")
        except penstock.PenstockError as error:
            assert error.code == "in_flight"
            continue
        log.create_group("orders", "g")
        made += 1
    over.set()
    for thread in threads:
        thread.join()
    assert refused == []
