"""How staged rows get into a user's table, and what a drain waits for; Spark is not needed for either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

import penstock
from penstock.core.target import Target
from penstock.log import pipelines
from penstock.log.pipelines import PipelineStore, Rename, StagedRow
from penstock.log.transact import transact
from tests.support.log_steps import append_orders_of_two_types
from tests.support.raw_sql import raw


def move(log: penstock.Log, target: Target, rows: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Stage rows, each of an event, and move them into the table, as a settle does."""
    staged = PipelineStore(log.store).stage_rows(1, [[StagedRow(offset, orjson.dumps(row)) for offset, row in rows]])
    statement = log.store.insert_staged(target)
    transact(log.store, lambda tx: pipelines.move_rows(tx, statement, [staged]))


@pytest.mark.shows("S22")
def test_a_merge_adds_up_what_it_is_told_to(log: penstock.Log, log_url: str) -> None:
    with raw(log_url) as sql:
        sql("create table totals (k text primary key, total integer, price numeric(9,2), last text)")
    target = Target("totals", ["k", "total", "price", "last"], ["k"], ["total", "price"])
    move(log, target, [(1, {"k": "a", "total": 1, "price": "0.25", "last": "x"})])
    move(
        log,
        target,
        [
            (4, {"k": "a", "total": None, "price": "1.25", "last": "z"}),
            (3, {"k": "a", "total": 30, "price": "1.00", "last": "y"}),
            (2, {"k": "b", "total": None, "price": None, "last": "y"}),
        ],
    )
    move(log, target, [(5, {"k": "b", "total": 7, "price": None, "last": None})])
    with raw(log_url) as sql:
        found = sorted(sql("select k, total, price, last from totals"))
    assert [(k, total, None if price is None else float(price), last) for k, total, price, last in found] == [
        ("a", 31, 2.5, "z"),
        ("b", 7, None, None),
    ]


@pytest.mark.shows("S22")
def test_a_version_replaces_what_is_older(log: penstock.Log, log_url: str) -> None:
    with raw(log_url) as sql:
        sql("create table newest (k integer primary key, version integer, n integer)")
    target = Target("newest", ["k", "version", "n"], ["k"], version="version")
    rows = [(1, 5, 10), (2, None, 20), (3, 9, 30)]
    move(log, target, [(9, {"k": k, "version": version, "n": n}) for k, version, n in rows])
    newer = [(1, 5, 11), (1, 6, 12), (1, 6, 13), (1, 4, 14), (2, 1, 21), (3, 8, 31), (3, None, 32)]
    move(log, target, [(offset, {"k": k, "version": v, "n": n}) for offset, (k, v, n) in enumerate(newer)])
    with raw(log_url) as sql:
        assert sorted(sql("select k, version, n from newest")) == [(1, 6, 12), (2, 1, 21), (3, 9, 30)]


@pytest.mark.shows("S19")
def test_a_group_is_not_drained_while_a_file_waits_for_its_name(log: penstock.Log) -> None:
    append_orders_of_two_types(log, 3)
    log.create_group("orders", "g")
    log.create_group("orders", "other", start="end")
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    waiting = [Rename("_penstock/a", "a", "/old")]
    transact(log.store, lambda tx: pipelines.note_renames(tx, lease.id, waiting))
    lease.settle()
    store = PipelineStore(log.store)
    assert not log.drained("orders", "g") and log.drained("orders", "other")
    assert list(store.due_renames("/new", "orders", "other").values()) == []
    assert list(store.due_renames("/old", "orders", "other").values()) == waiting
    due = store.due_renames("/new", "orders", "g")
    assert list(due.values()) == waiting, "a group gives its names wherever it wrote"
    store.forget_renames(due)
    assert log.drained("orders", "g")
