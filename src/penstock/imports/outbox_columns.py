"""The columns of an outbox table: which of them holds which field, and the expressions that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.limits import PAYLOAD_BYTES
from penstock.errors import InvalidSource
from penstock.imports.postgres import moment

if TYPE_CHECKING:
    from psycopg import sql

# Our fields, and the columns that hold them if nobody says otherwise: both vocabularies of the specification.
NAMES: Mapping[str, tuple[str, ...]] = {
    "event_id": ("event_id",),
    "event_type": ("event_type",),
    "payload": ("payload",),
    "content_type": ("content_type",),
    "headers": ("headers",),
    "metadata": ("metadata",),
    "partition_key": ("partition_key",),
    "ordering_key": ("ordering_key",),
    "state": ("state", "status"),
    "attempts": ("attempts",),
    "last_error": ("last_error",),
    "available_at": ("available_at",),
    "created_at": ("created_at",),
    "dead_at": ("dead_at", "updated_at"),
}
ROW = "a_row"  # the alias of the table: a bare name in ORDER BY would mean a column of the answer, which is text
_TIMES = ("available_at", "created_at", "dead_at")
_WHOLE = ("smallint", "integer", "bigint")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the fields of a table's rows are."""

    table: str  # quoted
    types: Mapping[str, str]  # of all columns
    by_field: Mapping[str, str]
    order: Sequence[str]  # columns; together they are unique
    published_when: str | None
    dead_when: str | None

    def state(self) -> sql.Composable:
        """The state of a row, as text."""
        from psycopg import sql

        state: sql.Composable = sql.SQL("'PENDING'")
        if self.published_when is None:
            state = sql.SQL("{}::text").format(sql.Identifier(self.by_field["state"]))
        else:
            state = sql.SQL("case when {} then 'PUBLISHED' else {} end").format(_users(self.published_when), state)
        if self.dead_when is not None:
            state = sql.SQL("case when {} then 'DEAD' else {} end").format(_users(self.dead_when), state)
        return state

    def field(self, name: str) -> sql.Composable:
        """One field of a row; null if the table does not have it."""
        from psycopg import sql

        if name == "state":
            return self.state()
        column = self.by_field.get(name)
        if column is None:
            return sql.NULL
        quoted = sql.Identifier(column)
        if name in _TIMES:
            return moment(quoted, due=name == "available_at")
        if name == "attempts":
            return sql.SQL("{}::bigint").format(quoted)
        if name == "payload":
            body = quoted if self.types[column] == "bytea" else sql.SQL("{}::text").format(quoted)
            most = sql.Literal(PAYLOAD_BYTES)
            return sql.SQL("case when octet_length({}) <= {} then {} end").format(body, most, body)
        return sql.SQL("{}::text").format(quoted)

    def size(self) -> sql.Composable:
        """How many bytes the payload has: one that is too large is not fetched."""
        from psycopg import sql

        column = self.by_field["payload"]
        text = "octet_length({})" if self.types[column] == "bytea" else "octet_length({}::text)"
        return sql.SQL(text).format(sql.Identifier(column))  # one of two literals

    def place(self) -> sql.Composable:
        """The position of a row, as an array of texts."""
        from psycopg import sql

        return sql.SQL("array[{}]").format(
            sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(one)) for one in self.order)
        )

    def ordered(self) -> sql.Composable:
        """The columns to sort by."""
        from psycopg import sql

        return sql.SQL(", ").join(sql.Identifier(ROW, one) for one in self.order)

    def behind(self) -> sql.Composable:
        """The condition that a row comes behind the position `after`."""
        from psycopg import sql

        values = [
            sql.SQL("(%(after)s::text[])[{}]::{}").format(
                sql.Literal(number), sql.SQL(self.types[one])
            )  # as the catalogue writes it
            for number, one in enumerate(self.order, start=1)
        ]
        return sql.SQL("({}) > ({})").format(self.ordered(), sql.SQL(", ").join(values))


def _users(condition: str) -> sql.Composable:
    """A condition of the user's, in a database of theirs; a comment at its end must not swallow what follows."""
    from psycopg import sql

    return sql.SQL("(" + condition.replace("%", "%%") + "\n)")


def find(
    table: str,
    types: Mapping[str, str],
    key: Sequence[str],
    mapped: Mapping[str, str],
    *,
    order_by: Sequence[str],
    default_type: str | None,
    published_when: str | None,
    dead_when: str | None,
) -> Columns:
    """Find the column of every field; `InvalidSource` says which is missing and how to name it."""
    odd = [name for name in mapped if name not in NAMES]
    if odd:
        raise InvalidSource(f"--column {odd[0]}=…: there is no field {odd[0]!r}; fields are {', '.join(NAMES)}.")
    by_field = {name: next((one for one in usual if one in types), "") for name, usual in NAMES.items()}
    by_field |= mapped
    by_field = {name: column for name, column in by_field.items() if column}
    for column in (*by_field.values(), *order_by):
        if column not in types:
            raise InvalidSource(f"The table {table} has no column {column!r}; it has {', '.join(types)}.")
    needed = ["payload", *([] if default_type else ["event_type"]), *([] if published_when else ["state"])]
    for name in needed:
        if name not in by_field:
            instead = {"event_type": ", or give all events one with --type", "state": ", or say --published-when SQL"}
            raise InvalidSource(
                f"The table {table} has no column {name!r}; it has {', '.join(types)}. "
                f"Name the one: --column {name}=NAME{instead.get(name, '')}."
            )
    order = _order(types, by_field, key, order_by)
    if not order:
        raise InvalidSource(
            f"The table {table} has neither an id nor a primary key. Name a unique column: --column event_id=NAME."
        )
    return Columns(table, types, by_field, order, published_when, dead_when)


def _order(
    types: Mapping[str, str], by_field: Mapping[str, str], key: Sequence[str], order_by: Sequence[str]
) -> list[str]:
    """Return what rows are read by: what the user says, else growing numbers, else the time; unique in the end."""
    unique = [by_field["event_id"]] if "event_id" in by_field else list(key)
    if order_by:
        first = list(order_by)
    elif len(unique) == 1 and types[unique[0]] in _WHOLE:
        first = []
    else:
        first = [by_field["created_at"]] if "created_at" in by_field else []
    return list(dict.fromkeys([*first, *unique])) if unique else []
