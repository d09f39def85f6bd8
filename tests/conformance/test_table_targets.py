"""How staged rows get into a user's table, and what a drain waits for; Spark is not needed for either."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import penstock
from penstock.core.target import Target
from penstock.errors import InvalidPayload, InvalidPipeline
from penstock.log import pipelines
from penstock.log.pipelines import PipelineStore, Rename
from penstock.log.refused import try_rows
from penstock.log.transact import transact
from tests.support.log_steps import append_orders_of_two_types
from tests.support.raw_sql import raw


def move(log: penstock.Log, target: Target, rows: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Stage rows, each of an event, and move them into the table, as a settle does."""
    batch = pa.RecordBatch.from_pylist([{"offset": offset, **row} for offset, row in rows])
    move_batch(log, target, batch)


def move_batch(log: penstock.Log, target: Target, batch: pa.RecordBatch) -> None:
    store = PipelineStore(log.store)
    table = store.staging_table(target)
    staged = store.stage_rows(1, table, [batch])
    transact(log.store, lambda tx: pipelines.move_rows(tx, table, [staged]))


@pytest.mark.shows("S22")
def test_a_merge_adds_up_what_it_is_told_to(log: penstock.Log, log_url: str) -> None:
    with raw(log_url) as sql:
        sql("create table totals (k text primary key, total integer, price numeric(9,2), last text)")
    target = Target(
        *(
            "totals",
            ["k", "total", "price", "last"],
            ["string", "bigint", "string", "string"],
            ["k"],
            ["total", "price"],
        )
    )
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
    target = Target("newest", ["k", "version", "n"], ["int"] * 3, ["k"], version="version")
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


@pytest.mark.shows("S20")
def test_values_arrive_as_they_were(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    """Every type of Spark's into its own column, and into some of another type, as the database reads text."""
    moment = datetime(2026, 3, 29, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    given: list[tuple[str, str, pa.DataType, list[Any]]] = [
        ("tinyint", "smallint", pa.int8(), [-128, 127]),
        ("bigint", "bigint", pa.int64(), [-(2**63), 2**63 - 1]),
        ("bigint", "integer", pa.int64(), [7, None]),
        ("bigint", "text", pa.int64(), [7, None]),
        ("float", "real", pa.float32(), [0.5, float("inf")]),
        ("double", "double precision", pa.float64(), [0.1, float("-inf")]),
        ("double", "numeric", pa.float64(), [0.1, None]),
        (
            "decimal(38,10)",
            "numeric(38,10)",
            pa.decimal128(38, 10),
            [Decimal("-12345678901234567890.0000000001"), None],
        ),
        ("decimal(9,2)", "double precision", pa.decimal128(9, 2), [Decimal("0.25"), None]),
        ("string", "text", pa.string(), ["tab\t, line\r\n\\.\n, \\N, 'quote', \"ü\" \U0001f600", ""]),
        ("string", "character varying(5)", pa.string(), ["\\N", "NULL"]),
        ("string", "integer", pa.string(), ["12", None]),
        ("string", "jsonb", pa.string(), ['{"a": [1, null]}', "null"]),
        ("string", "uuid", pa.string(), ["00000000-0000-0000-0000-00000000000a", None]),
        ("boolean", "boolean", pa.bool_(), [True, False]),
        ("binary", "bytea", pa.binary(), [bytes(range(256)), b""]),
        ("date", "date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
        ("timestamp", "timestamptz", pa.timestamp("us", "Europe/Berlin"), [moment, None]),
        ("timestamp", "timestamp", pa.timestamp("us", "Europe/Berlin"), [moment, None]),
        ("timestamp_ntz", "timestamp", pa.timestamp("us"), [moment.replace(tzinfo=None), None]),
        ("array<int>", "integer[]", pa.list_(pa.int32()), [[1, None, 3], []]),
        ("array<string>", "text[]", pa.list_(pa.string()), [["a\tb", "\\", '"'], None]),
        ("struct<a:int>", "jsonb", pa.struct([("a", pa.int32())]), [{"a": 1}, None]),
    ]
    names = [f"column {place}" for place in range(len(given))]
    with raw(postgres_log_url) as sql:
        columns = ", ".join(f'"{name}" {kind}' for name, (_, kind, _, _) in zip(names, given, strict=True))
        sql(f"create table everything ({columns})")
    arrays = [pa.array(values, kind) for _, _, kind, values in given]
    batch = pa.RecordBatch.from_arrays([*arrays, pa.array([1, 2])], names=[*names, "offset"])
    move_batch(postgres_log, Target("everything", names, [kind for kind, _, _, _ in given]), batch)
    with raw(postgres_log_url) as sql:
        sql("set timezone = 'UTC'")
        found = sql("select * from everything")
    assert len(found) == 2
    wanted = {
        3: ["7", None],
        6: [Decimal("0.1"), None],
        8: [0.25, None],
        11: [12, None],
        12: [{"a": [1, None]}, None],
        13: [UUID(int=10), None],
        18: [moment.replace(tzinfo=None), None],
    }
    for place, (_, kind, _, values) in enumerate(given):
        assert [row[place] for row in found] == wanted.get(place, values), kind


def test_what_a_column_cannot_hold_is_refused_by_the_settle(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with raw(postgres_log_url) as sql:
        sql("create table narrow (n integer, short varchar(3))")
    store = PipelineStore(postgres_log.store)
    table = store.staging_table(Target("narrow", ["n", "short"], ["bigint", "string"]))
    for n, short, said in ((2**40, "a", "out of range"), (1, "four", "too long")):
        batch = pa.RecordBatch.from_pydict({"offset": [1], "n": [n], "short": [short]})
        refused = try_rows(postgres_log.store, table, [store.stage_rows(1, table, [batch])])
        assert refused is not None and said in refused
    nul = pa.RecordBatch.from_pydict({"offset": [1], "n": [1], "short": ["a\0b"]})
    with pytest.raises(InvalidPayload, match="NUL"):
        store.stage_rows(1, table, [nul])


def test_staging_tables_are_shared_by_shape_and_shrink_when_unused(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    with raw(postgres_log_url) as sql:
        sql("create table numbers (n bigint)")
    store = PipelineStore(postgres_log.store)
    table = store.staging_table(Target("numbers", ["n"], ["bigint"]))
    assert store.staging_table(Target("numbers", ["n"], ["bigint"])) == table
    staged = store.stage_rows(1, table, [pa.RecordBatch.from_pydict({"n": list(range(1000))})])
    with raw(postgres_log_url) as sql:
        size = f"select pg_relation_size('{table.name}')"
        store.drop_leftovers()
        assert sql(size)[0][0] > 0, "rows that are staged stay"
        transact(postgres_log.store, lambda tx: pipelines.move_rows(tx, table, [staged]))
        store.drop_leftovers()
        assert sql(size) == [(0,)] and sql("select count(*) from numbers") == [(1000,)]


@pytest.mark.parametrize(("kind", "column"), [("array<int>", "bigint"), ("struct<a:int>", "boolean")])
def test_a_type_that_no_value_of_fits_is_refused_before_the_first_claim(
    postgres_log: penstock.Log, postgres_log_url: str, kind: str, column: str
) -> None:
    with raw(postgres_log_url) as sql:
        sql(f"create table odd (n {column})")
    with pytest.raises(InvalidPipeline, match=f"is {column}, and the result's is {kind}"):
        PipelineStore(postgres_log.store).staging_table(Target("odd", ["n"], [kind]))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_not_turned_into_nulls(log: penstock.Log, log_url: str, number: float) -> None:
    with raw(log_url) as sql:
        sql(f"create table nested (n {'jsonb' if log_url.startswith('postgresql') else 'text'})")
    for value in ([0.5, number], {"a": {"b": number}}):
        with pytest.raises(InvalidPayload, match="NaN or an infinite"):
            move(log, Target("nested", ["n"], ["array<double>"]), [(1, {"n": value})])
