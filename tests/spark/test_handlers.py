"""Handlers inside Spark tasks: whatever a handler does, it affects only its own event, and no Spark job fails."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.declare.groups import declare
from penstock.declare.portable import portable
from penstock.declare.subscription import Subscription
from penstock.spark import logs
from penstock.spark.handlers import time_slice
from penstock.testing import StatementCounter
from tests.support.children import handlers
from tests.support.declarations import subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.faults import EVENTS, LIMITS, append_with_faults, check_only_faults_are_dead
from tests.support.log_steps import count_published
from tests.support.notes import read_notes
from tests.support.spark_engine import engine_on_spark, run_on_spark_until_drained
from tests.support.waiting import wait_until


@contextmanager
def one_slice(log: penstock.Log, one: Subscription, *, run: int | None = None) -> Iterator[time_slice.Ticket]:
    """The ticket of a slice that runs in the test's own process."""
    declare(log, one, "test")
    ticket = time_slice.Ticket(1, "key", log.store.url, portable(one), 30.0, 0.1, run)
    yield ticket
    time_slice._forget(ticket)
    logs._opened.pop((os.getpid(), ticket.url)).close()  # a Python worker closes it when it ends


@pytest.mark.shows("S01", "K13", "K28")
def test_every_fault_ends_dead_and_all_others_published(spark: Any, log: penstock.Log, notes: Path) -> None:
    faults = append_with_faults(log)
    run_on_spark_until_drained(spark, log, subscription(handlers.plain, **LIMITS))
    check_only_faults_are_dead(log, faults)
    calls = Counter(int(offset) for offset, _ in read_notes(notes))
    assert all(calls[offset] == 1 for offset in range(1, EVENTS + 2) if offset not in faults)


@pytest.mark.shows("S01", "S11", "K27", "K18")
@pytest.mark.parametrize("ordering", [None, "key"])
def test_effects_of_neighbours_happen_exactly_once(
    spark: Any, log: penstock.Log, log_url: str, ordering: str | None
) -> None:
    create_done_table(log_url)
    faults = append_with_faults(log)
    run_on_spark_until_drained(spark, log, subscription(handlers.counting, **LIMITS, ordering=ordering))
    check_only_faults_are_dead(log, faults)
    good = [offset for offset in range(1, EVENTS + 2) if offset not in faults]
    order = done_offsets(log_url)
    assert sorted(order) == good
    expected = Counter(f"k{(offset - 1) % 20}" for offset in good)
    assert {key: log.state("orders", "g", key)["seen"] for key in expected} == expected
    if ordering is not None:
        for key in range(20):
            mine = [offset for offset in order if (offset - 1) % 20 == key]
            assert mine == sorted(mine), f"k{key} out of order"


@pytest.mark.shows("S02")
def test_one_percent_poison_leaves_state_as_in_a_clean_run(spark: Any, postgres_log: penstock.Log) -> None:
    log, count = postgres_log, 8_000
    log.append_many(
        "orders",
        [
            {"payload": {"n": n, "do": "raise" if n % 100 == 7 else None}, "type": "t", "ordering_key": f"k{n % 50}"}
            for n in range(count)
        ],
    )
    log.append_many(
        "clean", [{"payload": {}, "type": "t", "ordering_key": f"k{n % 50}"} for n in range(count) if n % 100 != 7]
    )
    poisoned_group = subscription(handlers.seen)
    clean_group = subscription(handlers.seen, stream="clean")
    run_on_spark_until_drained(spark, log, poisoned_group, clean_group)
    dead = log.deliveries("orders", "g", state="DEAD", limit=1_000)
    assert [one.offset for one in dead] == [n + 1 for n in range(count) if n % 100 == 7]
    assert {f"k{n}": log.state("orders", "g", f"k{n}") for n in range(50)} == {
        f"k{n}": log.state("clean", "g", f"k{n}") for n in range(50)
    }


@pytest.mark.shows("S03", "K27")
def test_a_killed_python_worker_loses_nothing(spark: Any, postgres_log: penstock.Log, notes: Path) -> None:
    log, url = postgres_log, postgres_log.store.url
    create_done_table(url)
    log.append_many(
        "orders", [{"payload": {"seconds": 0.002}, "type": "t", "ordering_key": f"k{n % 9}"} for n in range(600)]
    )
    slow = subscription(handlers.slow_counting, batch_seconds=0.2, lease_seconds=1)
    with engine_on_spark(spark, log, slow, until_drained=True) as engine:
        for share in (100, 250):
            wait_until(lambda share=share: len(done_offsets(url)) > share)  # type: ignore[misc]
            os.kill(_a_claimer(log), signal.SIGKILL)
        assert engine.wait(100)
    assert sorted(done_offsets(url)) == list(range(1, 601))
    assert engine.snapshot()["orders/g"]["published"] == 600, "lost slices are counted, too"
    assert {log.state("orders", "g", f"k{n}")["seen"] for n in range(9)} == {66, 67}


def _a_claimer(log: penstock.Log) -> int:
    """A live Python worker that holds a lease; claimed_by is host/executor/pid/group."""
    found: set[int] = set()

    def looked() -> bool:
        claimed = log.deliveries("orders", "g", state="CLAIMED", limit=1_000)
        found.update(int(str(one.claimed_by).split("/")[2]) for one in claimed)
        return any(Path(f"/proc/{pid}").exists() for pid in found)

    wait_until(looked)
    return next(pid for pid in found if Path(f"/proc/{pid}").exists())


@pytest.mark.shows("S01")
def test_claimed_by_names_host_executor_and_process(spark: Any, log: penstock.Log, notes: Path) -> None:
    log.append_many("orders", [{"payload": {"seconds": 1.0}, "type": "t"}] * 2)
    with engine_on_spark(spark, log, subscription(handlers.slow)):
        wait_until(lambda: bool(read_notes(notes)))
        (claimed, *_) = log.deliveries("orders", "g", state="CLAIMED")
        host, executor, pid, group = str(claimed.claimed_by).split("/")
        assert (host, executor, group) == (os.uname().nodename, "driver", "g") and int(pid) != os.getpid()


@pytest.mark.shows("S12")
def test_a_stop_ends_the_slices_at_once_and_releases_the_rest(spark: Any, log: penstock.Log, notes: Path) -> None:
    log.append_many("orders", [{"payload": {"seconds": 0.05}, "type": "t"}] * 400)
    with engine_on_spark(spark, log, subscription(handlers.slow, batch_seconds=60)) as engine:
        wait_until(lambda: len(read_notes(notes)) > 4)
    counts = engine.snapshot()["orders/g"]
    (group,) = log.stats().groups
    assert 0 < counts["published"] == group.published < 400 and counts["released"] > 0
    assert (group.claimed, group.dead, counts["failed"]) == (0, 0, 0)


def test_more_groups_than_slots_all_get_their_turn(spark: Any, log: penstock.Log) -> None:
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 50)
    groups = [subscription(handlers.plain, group=f"g{n}") for n in range(5)]
    with engine_on_spark(spark, log, *groups) as engine:
        wait_until(lambda: all(counts["published"] == 50 for counts in engine.snapshot().values()))
        log.append("orders", {}, type="t")  # every slice sleeps, or is about to
        wait_until(lambda: all(counts["published"] == 51 for counts in engine.snapshot().values()))
    assert {group.published for group in log.stats().groups} == {51}


@pytest.mark.shows("K42")
def test_a_run_survives_a_deleted_group(spark: Any, log: penstock.Log) -> None:
    """Its slices wait for a new group; other groups continue."""
    both = [subscription(handlers.plain, group=name) for name in ("g", "h")]
    with engine_on_spark(spark, log, *both) as engine:
        log.append("orders", {}, type="t")
        wait_until(lambda: count_published(log, "g") == count_published(log, "h") == 1)
        log.delete_group("orders", "g")
        log.append("orders", {}, type="t")
        wait_until(lambda: count_published(log, "h") == 2)
        log.create_group("orders", "g")
        wait_until(lambda: count_published(log, "g") == 2)
        assert not engine.wait(0), "the run ended by itself"


def test_a_slice_of_a_run_without_a_row_works_until_its_time_is_up(log: penstock.Log) -> None:
    """A role that may not write `runs` can work, too."""
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 20)
    with one_slice(log, subscription(handlers.plain)) as ticket:
        report = time_slice.run_slice(ticket)
    assert report.counts["orders/g"]["published"] == 20 and report.idle is not None and report.error is None


@pytest.mark.shows("S15")
def test_the_cost_of_a_slice_depends_on_leases_not_on_events(
    log: penstock.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successful event costs no statement and no Spark row."""
    statements = StatementCounter()
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 20_000)
    monkeypatch.setattr(logs, "open_log", lambda url, **options: penstock.open(url, hook=statements))
    monkeypatch.setattr(logs, "_opened", {})
    with one_slice(log, subscription(handlers.plain, isolation="inline")) as ticket:
        report = time_slice.run_slice(ticket)
    leases = report.counts["orders/g"]["leases"]
    assert report.counts["orders/g"]["published"] == 20_000 and leases < 40
    assert len(statements.blocks) < 25 * (leases + 3), statements.blocks
    assert not [block for block in statements.blocks if block.startswith("settle.") and block != "settle.whole"]
