"""Create and upgrade the schema: numbered migrations, each in a transaction of its own, resumable anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from penstock.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from penstock.stores import blocks
from penstock.stores.postgres import faults

if TYPE_CHECKING:
    from penstock.stores.postgres.store import PostgresStore


def script(schema: str) -> str:
    """The whole schema as one SQL script, for a DBA."""
    parts = [_prelude(schema)]
    for number, name, text in blocks.migrations("postgres", schema):
        parts += [f"-- {name}", text, _record(schema, number, name) + ";"]
    return "begin;\n" + "\n".join(parts) + "\ncommit;\n"


def _prelude(schema: str) -> str:
    return (
        f"create schema if not exists {schema};\n"
        f"create table if not exists {schema}.schema_version "
        "(version integer primary key, name text not null, applied_at timestamptz not null default clock_timestamp());"
    )


def _record(schema: str, number: int, name: str) -> str:
    return f"insert into {schema}.schema_version (version, name) values ({number}, '{name}') on conflict do nothing"


def version(connection: psycopg.Connection[Any], schema: str) -> int:
    """The newest migration that ran; 0 where there is no schema."""
    with connection.cursor() as cursor:
        cursor.execute("select to_regclass(%s)", (f"{schema}.schema_version",), prepare=False)
        row = cursor.fetchone()
        if row is None or row[0] is None:
            return 0
        query = f"select coalesce(max(version), 0) from {schema}.schema_version"
        cursor.execute(query, prepare=False)
        found = cursor.fetchone()
        return 0 if found is None else int(found[0])


def check(store: PostgresStore) -> bool:
    """Whether the schema is exactly what this code needs; refuses one that is newer."""
    newest = blocks.migrations("postgres", store.schema)[-1][0]
    with store.connection() as connection:
        found = version(connection, store.schema)
        connection.rollback()
    if found > newest:
        raise SchemaTooNew(f"The schema {store.schema!r} has version {found}; this Penstock knows {newest}.")
    return found == newest


def migrate(store: PostgresStore) -> list[str]:
    """Run what is missing. Killed anywhere, it goes on where it stopped; two at once take turns."""
    if check(store):
        return []
    ran: list[str] = []
    with store.connection() as connection:
        try:
            for number, name, text in blocks.migrations("postgres", store.schema):
                if _step(connection, store, number, name, text):
                    ran.append(name)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as error:
            connection.rollback()
            missing = version(connection, store.schema) == 0
            advice = f"The schema {store.schema!r} may not be changed here: {faults.words(error)}."
            raise (SchemaMissing if missing else SchemaTooOld)(advice) from error
    return ran


def _step(connection: psycopg.Connection[Any], store: PostgresStore, number: int, name: str, text: str) -> bool:
    hook = store.hook
    with connection.transaction(), connection.cursor() as cursor:
        if hook is not None:
            hook("before", name)
        cursor.execute(
            "select pg_advisory_xact_lock(hashtext(%s))", (f"penstock migrate {store.schema}",), prepare=False
        )
        if version(connection, store.schema) >= number:
            return False
        if number == 1:
            cursor.execute(_prelude(store.schema), prepare=False)
        for position, statement in enumerate(statements(text)):
            if hook is not None:
                hook("before", f"{name} {position}")
            cursor.execute(statement, prepare=False)
        cursor.execute(_record(store.schema, number, name), prepare=False)
    if hook is not None:
        hook("after", name)
    return True


def statements(text: str) -> list[str]:
    """The statements of a script; semicolons inside $$ … $$ do not end one."""
    found, current, quoted = [], [], False
    for line in text.splitlines():
        if not quoted and (not line.strip() or line.lstrip().startswith("--")):
            continue
        current.append(line)
        if line.count("$$") % 2:
            quoted = not quoted
        if not quoted and line.rstrip().endswith(";"):
            found.append("\n".join(current).rstrip().rstrip(";"))
            current = []
    assert not current, f"unfinished statement: {current[:2]}"
    return found
