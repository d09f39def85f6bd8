"""Create and upgrade the schema: numbered migrations, each in a transaction of its own, resumable anywhere."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from penstock.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from penstock.stores import blocks
from penstock.stores.sqlite.faults import READONLY, code_of, named, patiently

if TYPE_CHECKING:
    from penstock.stores.sqlite.store import SqliteStore

_VERSIONS = (
    "create table if not exists penstock_schema_version (version integer primary key, name text not null, "
    "applied_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)))"
)
_RECORD = "insert or ignore into penstock_schema_version (version, name) values ({number}, '{name}')"


def script() -> str:
    """The whole schema as one SQL script."""
    parts = ["begin immediate;", f"{_VERSIONS};"]
    for number, name, text in blocks.migrations("sqlite"):
        parts += [f"-- {name}", text, _RECORD.format(number=number, name=name) + ";"]
    return "\n".join([*parts, "commit;\n"])


def version(connection: sqlite3.Connection) -> int:
    """The newest migration that ran; 0 where there is no schema."""
    known = "select 1 from sqlite_master where type = 'table' and name = 'penstock_schema_version'"
    if connection.execute(known).fetchone() is None:
        return 0
    found = connection.execute("select coalesce(max(version), 0) from penstock_schema_version").fetchone()
    return int(found[0])


def check(store: SqliteStore) -> bool:
    """Whether the schema is exactly what this code needs; refuses one that is newer."""
    newest = blocks.migrations("sqlite")[-1][0]
    with store.connections.lend() as connection, named(store.path):
        found = patiently(lambda: version(connection))
    if found > newest:
        raise SchemaTooNew(f"The schema in {store.path} has version {found}; this Penstock knows {newest}.")
    return found == newest


def migrate(store: SqliteStore) -> list[str]:
    """Run what is missing. Killed anywhere, it goes on where it stopped; two at once take turns."""
    if check(store):
        return []
    ran: list[str] = []
    with store.connections.lend() as connection, named(store.path):
        try:
            for number, name, text in blocks.migrations("sqlite"):
                if _step(connection, store, number, name, text):
                    ran.append(name)
        except sqlite3.OperationalError as error:
            if code_of(error) != READONLY:
                raise
            refused = SchemaMissing if version(connection) == 0 else SchemaTooOld
            raise refused(f"The file {store.path} may not be written: {error}.") from error
    return ran


def _step(connection: sqlite3.Connection, store: SqliteStore, number: int, name: str, text: str) -> bool:
    hook = store.hook
    if hook is not None:
        hook("before", name)
    patiently(lambda: connection.execute("begin immediate"))
    try:
        if version(connection) >= number:
            return False
        if number == 1:
            connection.execute(_VERSIONS)
        for position, statement in enumerate(statements(text)):
            if hook is not None:
                hook("before", f"{name} {position}")
            connection.execute(statement)
        connection.execute(_RECORD.format(number=number, name=name))
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
    if hook is not None:
        hook("after", name)
    return True


def statements(text: str) -> list[str]:
    """The statements of a script; SQLite itself says where one ends, triggers included."""
    found: list[str] = []
    current = ""
    for line in text.splitlines(keepends=True):
        if not current and (not line.strip() or line.lstrip().startswith("--")):
            continue
        current += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(current):
            found.append(current.strip())
            current = ""
    assert not current, f"unfinished statement: {current[:80]}"
    return found
