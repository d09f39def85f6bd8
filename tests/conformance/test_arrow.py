"""Large leases are read as Arrow, small ones as rows; both show the same events."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow
import pytest

import penstock
from penstock.core.batch import Events
from penstock.core.columns import ArrowColumns, RowColumns, unpack
from penstock.errors import StoreUnavailable
from penstock.stores.postgres import arrow

FIELDS = (
    *("offset", "event_id", "event_type", "payload", "content_type", "headers", "metadata", "partition_key"),
    *("ordering_key", "available_at", "created_at", "attempts", "failures", "last_error", "replays"),
    *("claimed_at", "claimed_by"),
)
COUNT = arrow.FROM_EVENTS + 200


def seen(events: Any) -> list[tuple[Any, ...]]:
    return [tuple(getattr(event, field) for field in FIELDS) for event in events]


def append_odd_events(log: penstock.Log) -> None:
    past = datetime.datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
    log.append_many(
        "orders",
        [
            {
                "payload": bytes([n % 256]) * (n % 7) if n % 2 else {"größe": n, "percent": "100 %% %(low)s"},
                "type": f"order.t{n % 3}",
                "ordering_key": None if n % 5 == 0 else f"schlüssel-{n % 11}",
                "partition_key": "p" if n % 4 == 0 else None,
                "headers": {"tenant": "eu", "quote": "it's"} if n % 3 == 0 else None,
                "metadata": {"trace": n} if n % 6 == 0 else None,
                "available_at": past if n % 8 == 0 else None,
            }
            for n in range(8 * COUNT)
        ],
    )


@pytest.mark.parametrize(
    "group",
    [{}, {"keyed": True}, {"types": ["order.t1"]}, {"headers": {"tenant": "eu"}}],
    ids=["all", "lane", "type", "header"],
)
def test_arrow_and_rows_show_the_same_events(
    postgres_log: penstock.Log, group: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    append_odd_events(postgres_log)
    postgres_log.create_group("orders", "g", **group)
    lease = postgres_log.claim("orders", "g", limit=COUNT, claimed_by="w")
    assert lease is not None and isinstance(lease.events._columns, ArrowColumns) and len(lease) >= arrow.FROM_EVENTS
    monkeypatch.setattr(arrow, "available", lambda: False)
    rows = postgres_log.store.read_lease(lease._row)
    assert isinstance(rows, RowColumns)
    assert seen(lease.events) == seen(Events(rows, "orders", lease.events.claim))
    for columns in (lease.events._columns, rows):  # and in the handler's process
        packed = Events(unpack(*columns.pack(10, 60)), "orders", lease.events.claim)
        assert seen(packed) == seen(lease.events)[10:60]


def test_a_broken_arrow_connection_is_replaced(postgres_log: penstock.Log) -> None:
    append_odd_events(postgres_log)
    postgres_log.create_group("orders", "g")
    lease = postgres_log.claim("orders", "g", limit=COUNT, claimed_by="w")
    assert lease is not None
    with postgres_log.store.transaction() as tx:
        tx.user_sql(
            "do $$ begin perform pg_terminate_backend(pid) from pg_stat_activity "
            "where pid <> pg_backend_pid() and datname = current_database() and application_name <> 'penstock'; end $$",
            (),
        )
    with pytest.raises(StoreUnavailable):
        postgres_log.store.read_lease(lease._row)
    assert len(postgres_log.store.read_lease(lease._row)) == COUNT


def test_arrow_and_row_columns_find_the_same_events_of_a_key() -> None:
    dice = random.Random(7)
    for _ in range(300):
        keys = [dice.choice(["a", "b", "c", "d", None]) for _ in range(dice.randrange(1, 12))]
        table = pyarrow.table({"n": range(len(keys)), "key": pyarrow.array(keys, pyarrow.string())})
        places = [place for place in range(len(keys)) if dice.random() < 0.3]
        end = dice.randrange(len(keys) + 1)
        wanted = {keys[place] for place in places} - {None}
        expected = [(place, key) for place, key in enumerate(keys[:end]) if key in wanted]
        assert RowColumns([*enumerate(keys)]).alike(1, places, end) == expected
        assert ArrowColumns(table).alike(1, places, end) == expected
