"""Events as Spark's tasks read them: Arrow, in pieces, the same on both stores."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa

import penstock
from penstock.core.lease import LeaseRow
from penstock.spark import arrow


def _claimed(log: penstock.Log) -> LeaseRow:
    lease = log.claim("orders", "g", limit=1_000, claimed_by="w")
    assert lease is not None
    return lease.row


def _fill(log: penstock.Log, count: int = 20) -> list[uuid.UUID]:
    events = [
        {
            "payload": {"n": n},
            "type": f"order.{n % 3}",
            "ordering_key": f"k{n % 4}",
            "headers": {"tenant": "eu", "n": str(n)} if n % 2 else None,
        }
        for n in range(count)
    ]
    log.append_many("orders", events)
    return [event.event_id for event in log.read("orders", limit=count)]


def test_a_lease_reads_the_same_whole_and_in_pieces(log: penstock.Log) -> None:
    ids = _fill(log)
    log.create_group("orders", "g", types=["order.0", "order.2"])
    row = _claimed(log)
    whole = pa.Table.from_batches(arrow.read_lease(log, row))
    assert whole.schema == arrow.events_schema() and whole.num_rows == row.members
    pieces = [pa.Table.from_batches(arrow.read_lease(log, part), whole.schema) for part in arrow.parts(row, 3)]
    assert len(pieces) == 3 and pa.concat_tables(pieces).equals(whole)
    first = whole.slice(0, 1).to_pylist()[0]
    assert first["event_id"] == str(ids[0]) and first["payload"] == b'{"n":0}' and first["headers"] is None
    assert dict(whole.slice(2, 1).to_pylist()[0]["headers"]) == {"tenant": "eu", "n": "3"}
    assert datetime.now(UTC) - first["created_at"] < timedelta(minutes=1) and first["stream"] == "orders"


def test_retried_rows_and_lanes_are_read_in_pieces_too(log: penstock.Log) -> None:
    ids = _fill(log)
    log.create_group("orders", "g", ordering="key", retry=penstock.Retry(base_seconds=0))
    row = _claimed(log)
    assert row.lanes == 8
    whole = pa.Table.from_batches(arrow.read_lease(log, row))
    pieces = [pa.Table.from_batches(arrow.read_lease(log, part), whole.schema) for part in arrow.parts(row, 2)]
    assert pa.concat_tables(pieces).equals(whole)
    log.create_group("orders", "plain", retry=penstock.Retry(base_seconds=0))
    lease = log.claim("orders", "plain", claimed_by="w", limit=100)
    assert lease is not None
    lease.settle(failed={one: "no" for one in ids[:5]})
    rows = log.claim("orders", "plain", claimed_by="w", limit=100)
    assert rows is not None and rows.row.offsets is not None
    pieces = [pa.Table.from_batches(arrow.read_lease(log, part)) for part in arrow.parts(rows.row, 2)]
    assert [len(piece) for piece in pieces] == [3, 2]
    assert pa.concat_tables(pieces)["event_id"].to_pylist() == [str(one) for one in ids[:5]]


def test_a_range_reads_the_events_between_two_offsets(log: penstock.Log) -> None:
    ids = _fill(log)
    first = log.read("orders", limit=1)[0].offset
    table = pa.Table.from_batches(arrow.read_range(log, "orders", first, first + 10))
    assert table["event_id"].to_pylist() == [str(one) for one in ids[1:11]]
