"""Staged rows that a table refuses, and staged rows that are gone: no Spark is needed to see what the settle does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.core.lease import Failure, Settlement
from penstock.core.target import StagingTable, Target
from penstock.errors import StagedLost
from penstock.log import pipelines
from penstock.log.pipelines import PipelineStore
from penstock.log.refused import Refused, refused_events, refused_rows, try_rows
from penstock.log.staging import Staged, Staging
from penstock.log.transact import transact
from penstock.spark.rows import events_of
from tests.support.log_steps import append_orders, claim_lease
from tests.support.raw_sql import raw


def stage(log: penstock.Log, rows: Sequence[tuple[int | None, int]]) -> list[Staged]:
    """Stage rows (event, n) for a lease."""
    append_orders(log, 1)
    log.create_group("orders", "g")
    return [PipelineStore(log.store).stage_rows(claim_lease(log).id, table(log), [batch(rows)])]


def batch(rows: Sequence[tuple[int | None, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"offset": [offset for offset, _ in rows], "n": [n for _, n in rows]})


def table(log: penstock.Log) -> StagingTable:
    return PipelineStore(log.store).staging_table(Target("small", ["n"], ["bigint"]))


def stored(url: str) -> list[int]:
    with raw(url) as sql:
        return sorted(n for (n,) in sql("select n from small"))


@pytest.fixture
def small(log_url: str) -> None:
    """A table that takes every number once, but not those that end in 7."""
    with raw(log_url) as sql:
        sql("create table small (n bigint primary key check (n - n / 10 * 10 <> 7))")


@pytest.mark.usefixtures("small")
def test_the_events_of_refused_rows_are_found(log: penstock.Log, log_url: str) -> None:
    rows = [(offset, offset) for offset in range(100)] + [(200, 3), (201, 17)]
    named = stage(log, rows)
    assert try_rows(log.store, table(log), named) is not None
    found = refused_rows(log.store, table(log), named, {97})
    assert found is not None and not found.untried
    sevens = {n for n in range(100) if n % 10 == 7 and n != 97}
    assert found.failed.keys() == sevens | {200, 201}, "of two rows with the same key, the later one is refused"
    assert "constraint" in found.failed[17].message.lower() and found.failed[17].code == "effect_failed"
    assert stored(log_url) == [], "a trial leaves nothing behind"
    failed, to = found.failed.keys() | {97}, table(log)
    transact(log.store, lambda tx: pipelines.move_rows(tx, to, named, failed))
    assert stored(log_url) == [n for n in range(100) if n % 10 != 7]


@pytest.mark.usefixtures("small")
def test_rows_that_name_no_event_are_tried_only_together(log: penstock.Log) -> None:
    named = stage(log, [(1, 1), (None, 2)])
    assert refused_rows(log.store, table(log), named, frozenset()) is None
    assert try_rows(log.store, table(log), named) is None


@pytest.mark.usefixtures("small")
def test_a_search_that_is_too_long_says_what_it_did_not_try(log: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.refused.REFUSAL_TRIES", 5)
    found = refused_rows(log.store, table(log), stage(log, [(n, n) for n in range(16)]), frozenset())
    assert isinstance(found, Refused) and 7 in found.untried and not {0, 1, 2, 3} & found.untried


@pytest.mark.shows("S20")
@pytest.mark.usefixtures("small")
def test_staged_rows_that_are_gone_are_not_taken_for_none(log: penstock.Log, log_url: str) -> None:
    """An unlogged table is empty after a crash of the server."""
    (named,) = stage(log, [(1, 1), (2, 2)])
    staged_rows = "penstock.staged_rows" if log_url.startswith("postgresql") else "penstock_staged_rows"
    with raw(log_url) as sql:
        sql(f"delete from {staged_rows}")
    with pytest.raises(StagedLost):
        transact(log.store, partial(pipelines.move_rows, table=table(log), named=[named]))


def test_an_event_whose_id_is_taken_names_its_source(log: penstock.Log) -> None:
    taken = str(penstock.event_id("taken"))
    log.append("totals", {"n": 0}, type="total", event_id=taken)
    rows: dict[str, Any] = {"n": [1, 2, 3], "event_id": [None, taken, None], "type": ["total"] * 3}
    events = events_of(pa.RecordBatch.from_pydict(rows), "totals", None, None)
    staged = Staging(log.store, "totals", pipelines.WRITER, 1).stage([(events, [11, 12, 13])])
    found = refused_events(log.store, [staged], frozenset())
    assert found is not None and found.failed.keys() == {12} and found.failed[12].code == "duplicate_mismatch"
    assert len(log.read("totals", limit=10)) == 1


@pytest.mark.usefixtures("small")
def test_rows_move_while_the_end_of_their_lease_goes_back(log: penstock.Log, log_url: str) -> None:
    """The constraints of the user's table are checked while the lease is open; those of the law come later."""
    append_orders(log, 4)
    log.create_group("orders", "g")
    lease = claim_lease(log)
    staged = [PipelineStore(log.store).stage_rows(lease.id, table(log), [batch([(1, 1)])])]
    said = Settlement(failed={3: Failure("error", "no")}, upto=1, moves=[str(one.attempt) for one in staged])
    move = partial(pipelines.move_rows, table=table(log), named=staged)
    settled = log.settle(lease.id, lease.token, said, move=move)
    assert (settled.published, settled.failed, settled.released) == (1, 1, 2) and stored(log_url) == [1]
