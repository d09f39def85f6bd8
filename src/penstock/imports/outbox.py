"""An outbox table in PostgreSQL: the specification's in either vocabulary, or one made at home."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.delivery import State
from penstock.core.imported import Found, Target, Was
from penstock.errors import InvalidSource
from penstock.imports import outbox_columns
from penstock.imports.fields import body, identity, json_object, origin, oversize
from penstock.imports.outbox_columns import NAMES, ROW
from penstock.imports.postgres import PostgresReader
from penstock.imports.source import GroupCount, counted, kept_open, known_words

if TYPE_CHECKING:
    from psycopg import sql

TABLE = "openoutbox_events"
_WORDS = (
    (State.PENDING, "pending"),
    (State.CLAIMED, "claimed delivering"),
    (State.PUBLISHED, "published delivered"),
    (State.DEAD, "dead"),
)


class Outbox:
    """The rows of an outbox table, for one stream and one group."""

    system = "outbox"
    resumes = True
    stop_first = "the relay that reads the table"
    state = None

    def __init__(
        self,
        url: str,
        target: Target,
        *,
        table: str = TABLE,
        columns: Mapping[str, str] | None = None,
        states: Mapping[str, str] | None = None,
        published_when: str | None = None,
        dead_when: str | None = None,
        order_by: Sequence[str] = (),
        default_type: str | None = None,
    ) -> None:
        self.targets = [target]
        self.options = {
            "columns": dict(columns or {}),
            "states": dict(states or {}),
            "published_when": published_when,
            "dead_when": dead_when,
            "order_by": list(order_by),
            "type": default_type,
        }
        self.notes: dict[str, Any] = {}
        self._target = target
        self._type = default_type
        self._words = known_words(*_WORDS, more=states)
        self._database = PostgresReader(url)
        with kept_open(self._database):
            full = self._database.table(table)
            self._columns = outbox_columns.find(
                full,
                self._database.columns(full),
                self._database.primary_key(full),
                columns or {},
                order_by=order_by,
                default_type=default_type,
                published_when=published_when,
                dead_when=dead_when,
            )
        self.name = f"{self._database.name}#{full} for {target.group} on {target.stream}"
        self._origin = f"{self._database.name}#{full}"  # of ids that are made: the same in every import of the table

    def count(self) -> list[GroupCount]:
        """Count the rows of each state."""
        from psycopg import sql

        self._check_order()
        query = sql.SQL("select {}, count(*) from {} group by 1").format(self._columns.state(), self._table)
        found = {word: int(count) for word, count in self._database.rows(query, {})}
        states = counted(found, self._words, f"The table {self._columns.table}")
        return [GroupCount(self._target.stream, self._target.group, states)]

    @property
    def _table(self) -> sql.SQL:
        from psycopg import sql

        return sql.SQL(self._columns.table)  # as the catalogue quotes it

    def _check_order(self) -> None:
        """Refuse rows that no position can name, and ids that would make one event of several rows."""
        from psycopg import sql

        for column in self._columns.order:
            query = sql.SQL("select count(*) from {} where {} is null").format(self._table, sql.Identifier(column))
            ((missing,),) = self._database.rows(query)
            if missing:
                raise InvalidSource(
                    f"{missing:,} rows of {self._columns.table} have no {column!r}, by which they are read. "
                    "Name other columns, without nulls: --order-by NAME."
                )
        own = self._columns.by_field.get("event_id")
        if own is not None and not self._database.unique(self._columns.table, own):
            raise InvalidSource(
                f"Rows of {self._columns.table} share the same {own!r}, and one id is one event. "
                "Name a unique column: --column event_id=NAME."
            )

    def read(self, after: Any) -> Iterator[Found]:
        """Yield the rows in order."""
        from psycopg import sql

        fields = sql.SQL(", ").join(self._columns.field(name) for name in NAMES)
        where = sql.SQL("where {}").format(self._columns.behind()) if after is not None else sql.SQL("")
        query = sql.SQL("select {}, {}, {} from {} {} {} order by {}").format(
            self._columns.place(),
            self._columns.size(),
            fields,
            self._table,
            sql.Identifier(ROW),
            where,
            self._columns.ordered(),
        )
        for place, size, *values in self._database.each(query, {"after": after}):
            yield self._found(place, size, dict(zip(NAMES, values, strict=True)))

    def _found(self, place: list[str], size: int | None, row: dict[str, Any]) -> Found:
        payload, content_type = body(row["payload"], row["content_type"])
        headers, odd = json_object(row["headers"], "headers")
        metadata, odd_too = json_object(row["metadata"], "metadata")
        event_id, noted = identity(self._origin, row["event_id"], " ".join(place))
        state = self._words["null" if row["state"] is None else row["state"].lower()]
        was = Was(
            state,
            max(0, row["attempts"] or 0),
            row["last_error"],
            row["available_at"],
            row["dead_at"] if state is State.DEAD else None,
        )
        fields = {
            "payload": payload,
            "content_type": content_type,
            "type": row["event_type"] or self._type,
            "headers": headers,
            "metadata": {**metadata, **noted, **origin(row["created_at"])},
            "event_id": event_id,
            "partition_key": row["partition_key"] or None,
            "ordering_key": row["ordering_key"] or None,
        }
        return Found(place, self._target.stream, fields, {self._target.group: was}, oversize(size) or odd or odd_too)

    def close(self) -> None:
        """Disconnect."""
        self._database.close()
