"""The types of rows name columns that their blocks have, in both dialects."""

from __future__ import annotations

import inspect
import re
import sqlite3
from typing import Any

import pytest

import penstock
from penstock.stores import rows

ANSWERS: dict[type[Any], tuple[str, ...]] = {
    rows.GroupRow: ("group.find",),
    rows.CursorRow: ("claim.lanes",),
    rows.LaneRow: ("claim.look",),
    rows.NextDueRow: ("claim.next_due",),
    rows.DueRow: ("claim.due_rows", "claim.ordered_rows"),
    rows.RangeRow: (
        "claim.whole_range",
        "claim.lane_range",
        "claim.plain_range",
        "claim.careful_range",
        "claim.careful_lane",
    ),
    rows.RangeBeforeRow: ("claim.ranges_before",),
    rows.RowBeforeRow: ("claim.rows_before",),
    rows.ReturnedRow: ("claim.returned", "returned.all", "rewind.crossing"),
    rows.HeldRow: ("reader.held",),
    rows.LeaseRecord: ("lease.lock", "reap.lock", "rewind.open", "reader.leases"),
    rows.MemberRow: ("settle.members", "settle.named_members", "settle.member_rows"),
    rows.EndedRow: ("rewind.ended",),
    rows.UnsettledRow: ("reader.unsettled",),
    rows.OpenRow: ("reader.open",),
    rows.DeathRow: ("guard.deaths",),
    rows.GroupName: ("reap.groups",),
}


def fields(row: type[Any]) -> set[str]:
    """What a row type names, by annotation or as a property, its own and those of its bases."""
    own = {name for cls in row.__mro__ for name in inspect.get_annotations(cls) if not name.startswith("_")}
    return own | {name for cls in row.__mro__ for name, value in vars(cls).items() if isinstance(value, property)}


@pytest.mark.parametrize("row", ANSWERS, ids=lambda row: row.__name__)
def test_a_row_has_the_columns_of_its_type(log: penstock.Log, row: type[Any]) -> None:
    assert fields(row)
    for block in ANSWERS[row]:
        if block in log.store.blocks:
            assert fields(row) <= columns(log, log.store.blocks[block]), block


def columns(log: penstock.Log, statement: str) -> set[str]:
    """The columns that a block answers with, whatever it is asked."""
    if log.store.kind == "sqlite":
        with sqlite3.connect(log.store.url.removeprefix("sqlite:///")) as file:
            found = file.execute(statement, dict.fromkeys(re.findall(r":(\w+)", statement), 0)).description
        file.close()
        return {column[0] for column in found}
    import psycopg

    from penstock.stores.postgres.store import split_url

    with psycopg.connect(split_url(log.store.url)[0]) as connection:
        cursor = connection.execute(statement, dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
        return {column.name for column in cursor.description or ()}
