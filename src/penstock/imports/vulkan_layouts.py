"""The two layouts of Vulkan's tables, found by what a schema holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import InvalidSource
from penstock.imports.postgres import PostgresReader

LOG, DELIVERY, CURSOR = "message_log", "delivery", "cursor"
# Columns that may hold a field, in the order in which they are looked for.
_OFFSET = ("offset", "event_offset", "message_offset", "log_offset", "id")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "topic": ("topic", "stream"),
    "type": ("routing_key", "event_type", "type"),
    "key": ("ordering_key", "partition_key", "key", "message_key"),
    "event_id": ("event_id", "message_id"),
    "payload": ("payload", "body", "data"),
    "headers": ("headers",),
    "created_at": ("created_at", "published_at"),
}
_STATES: Mapping[str, tuple[str, ...]] = {
    "topic": ("topic", "stream"),
    "group": ("consumer_group", "group_name", "group"),
    "status": ("status", "state"),
    "attempts": ("attempts",),
    "run_at": ("run_at", "available_at"),
    "last_error": ("last_error", "error"),
    "updated_at": ("updated_at", "dead_at"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """One log with its deliveries: all topics of the older layout, or one topic of the newer."""

    log: str  # quoted names of tables
    deliveries: str
    cursors: str | None  # with them only exceptions have a delivery
    topic: str | None  # if the tables do not say it
    offset: str
    columns: Mapping[str, str]  # of the log
    types: Mapping[str, str]
    event: str  # the column of a delivery that names its event
    states: Mapping[str, str]  # columns of deliveries
    cursor: Mapping[str, str]  # columns of cursors


def find(database: PostgresReader, schema: str) -> list[Layout]:
    """Return what the schema holds, in the order of names; `InvalidSource` if it is none of Vulkan's."""
    from psycopg import sql

    query = "select tablename from pg_tables where schemaname = %(schema)s order by tablename"
    tables = [name for (name,) in database.rows(sql.SQL(query), {"schema": schema})]
    if "events" in tables and "deliveries" in tables:
        return [_layout(database, schema, "events", "deliveries", None, None)]
    logs = [name for name in tables if name == LOG or name.endswith(f"_{LOG}")]
    found = []
    for name in logs:
        prefix = name.removesuffix(LOG)
        if {f"{prefix}{DELIVERY}", f"{prefix}{CURSOR}"} <= {*tables}:
            topic = prefix.removesuffix("_") or None
            found.append(_layout(database, schema, name, f"{prefix}{DELIVERY}", f"{prefix}{CURSOR}", topic))
    if not found:
        raise InvalidSource(
            f"The schema {schema!r} holds neither events and deliveries nor {LOG}, {DELIVERY} and {CURSOR}; "
            f"it has {', '.join(tables) or 'no tables'}. Name another with --schema."
        )
    return found


def _layout(
    database: PostgresReader, schema: str, log: str, deliveries: str, cursors: str | None, topic: str | None
) -> Layout:
    full = {name: database.table(f'"{schema}"."{name}"') for name in (log, deliveries, cursors) if name is not None}
    types = database.columns(full[log])
    columns = _named(types, _NAMES)
    of_state = database.columns(full[deliveries])
    states = _named(of_state, _STATES)
    of_cursor = {} if cursors is None else database.columns(full[cursors])
    cursor = _named(of_cursor, {**_STATES, "offset": ("offset", "position", "cursor", "last_offset", "upto")})
    if topic is None and "topic" not in columns:
        raise InvalidSource(f"The table {full[log]} says no topic: it has {', '.join(types)}.")
    for name, found, table in (
        ("payload", columns, log),
        ("group", states, deliveries),
        ("status", states, deliveries),
    ):
        if name not in found:
            raise InvalidSource(f"The table {full[table]} has no column for the {name}.")
    if cursors is not None and not {"group", "offset"} <= cursor.keys():
        raise InvalidSource(f"The table {full[cursors]} has no columns for the group and its offset.")
    return Layout(
        full[log],
        full[deliveries],
        None if cursors is None else full[cursors],
        topic,
        _one_of(types, _OFFSET, full[log]),
        columns,
        types,
        _one_of(of_state, ("event_offset", "message_offset", "log_offset", "offset"), full[deliveries]),
        states,
        cursor,
    )


def _named(types: Mapping[str, str], names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    found = {field: next((one for one in usual if one in types), "") for field, usual in names.items()}
    return {field: column for field, column in found.items() if column}


def _one_of(types: Mapping[str, str], names: tuple[str, ...], table: str) -> str:
    for name in names:
        if name in types:
            return name
    raise InvalidSource(f"The table {table} has no offset: it has {', '.join(types)}.")
