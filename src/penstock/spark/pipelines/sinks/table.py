"""Rows into a table of the user's: put aside as JSON by the tasks, moved by one INSERT in the settle."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import orjson

from penstock.core.lease import LeaseRow
from penstock.errors import InvalidPayload, InvalidPipeline
from penstock.log import pipelines
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore, StagedRow
from penstock.log.staging import Staged
from penstock.sinks import Table
from penstock.spark.logs import log_at
from penstock.spark.pipelines.sinks.base import Aside, Move, put_aside

_ODD: Final = frozenset("\"'\\")  # in the name of a column


class TableWriter:
    """The sink `Table`."""

    without: tuple[str, ...] = ()

    def __init__(self, log: Log, safe_url: str, sink: Table) -> None:
        self._staged = PipelineStore(log.store)
        self._schema: str | None = getattr(log.store, "schema", None)  # of PostgreSQL
        self._safe_url = safe_url
        self._sink = sink
        self._columns: list[str] = []
        self._statement = ""

    def check(self, schema: Any) -> None:
        """The table must be there and take these columns; the database itself has the last word."""
        there = self._staged.columns(_quoted_table(self._sink.name) if self._schema else self._sink.name)
        if not there:
            raise InvalidPipeline(f"There is no table {self._sink.name!r} in the log's database.")
        names = [name for name in schema.names if name != "offset" or name in there]
        strangers = [name for name in names if name not in there or _ODD & {*name}]
        if strangers or not names:
            raise InvalidPipeline(
                f"The table {self._sink.name!r} has no column {', '.join(map(repr, strangers)) or 'of the result'}; "
                f"it has {', '.join(there)}."
            )
        missing = [key for key in self._sink.keys if key not in names]
        if missing:
            raise InvalidPipeline(f"The result has no column {missing[0]!r}, which is a key of the upsert.")
        self._columns = names
        binary = [field.name for field in schema.fields if field.dataType.typeName() == "binary"]
        if self._schema is None:
            self._statement = _sqlite(self._sink, names, frozenset(binary))
        else:
            self._statement = _postgres(self._sink, names, self._schema)
        refused = self._staged.check_statement(self._statement)
        if refused is not None:
            raise InvalidPipeline(f"The table {self._sink.name!r} does not take these rows: {refused}.")

    def write(self, rows: Any, piece: LeaseRow) -> list[Aside]:
        url, lease, columns, sqlite = self._safe_url, piece.id, tuple(self._columns), self._schema is None

        def stage(batches: Iterator[Any]) -> Aside:
            chunks = (_rows(one, columns, sqlite) for one in batches)
            staged = PipelineStore(log_at(url).store).stage_rows(lease, chunks)
            return Aside(str(staged.attempt), staged.events)

        return put_aside(rows, stage)

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        named = [Staged(uuid.UUID(one.name), one.rows) for one in aside]
        return (lambda tx: pipelines.move_rows(tx, self._statement, named)) if named else None

    def finish(self) -> None:
        """Nothing is left to do after the settle."""

    def clean(self) -> None:
        self._staged.drop_leftovers()


# --- statements ------------------------------------------------------------------------------------------------------
# Their names were checked against the table and hold no quotes; the parameter is a JSON array of attempts.


def _postgres(sink: Table, columns: Sequence[str], schema: str) -> str:
    """The database makes its own types out of JSON; of rows with the same key, the last event's counts."""
    table = _quoted_table(sink.name)
    read = ", ".join(f'r."{name}"' for name in columns)
    source = (
        f"from {schema}.staged_rows s cross join lateral jsonb_populate_record(null::{table}, s.fields) r "
        "where s.attempt in (select one::uuid from jsonb_array_elements_text(?::jsonb) one)"
    )
    into = f"insert into {table} ({_names(columns)})"
    if not sink.keys:
        return f"{into} select {read} {source} order by s.event_offset, s.position"
    keys = ", ".join(f'r."{key}"' for key in sink.keys)
    last = f"order by {keys}, s.event_offset desc nulls last, s.position desc"
    return f"{into} select distinct on ({keys}) {read} {source} {last} {_on_conflict(sink, columns)}"


def _sqlite(sink: Table, columns: Sequence[str], binary: frozenset[str]) -> str:
    """Rows come in the order of their events, so that an upsert leaves what the last one says."""
    read = ", ".join(
        f"penstock_unhex(json_extract(s.fields, '$.\"{name}\"'))"
        if name in binary
        else f"json_extract(s.fields, '$.\"{name}\"')"
        for name in columns
    )
    text = (
        f"insert into {_quoted_table(sink.name)} ({_names(columns)}) select {read} from penstock_staged_rows s "
        "where s.attempt in (select value from json_each(?)) order by s.event_offset, s.position"
    )
    return f"{text} {_on_conflict(sink, columns)}" if sink.keys else text


def _on_conflict(sink: Table, columns: Sequence[str]) -> str:
    others = ", ".join(f'"{name}" = excluded."{name}"' for name in columns if name not in sink.keys)
    return f"on conflict ({_names(sink.keys)}) do " + (f"update set {others}" if others else "nothing")


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _quoted_table(name: str) -> str:
    return ".".join(f'"{part}"' for part in name.split("."))


# --- rows ------------------------------------------------------------------------------------------------------------


def _rows(batch: Any, columns: Sequence[str], sqlite: bool) -> list[StagedRow]:
    """The rows of a record batch as JSON."""
    names = batch.schema.names
    offsets = batch.column("offset").to_pylist() if "offset" in names else [None] * len(batch)
    values = [_exact(batch.column(name).to_pylist(maps_as_pydicts="strict"), sqlite) for name in columns]
    plain = _in_sqlite if sqlite else _in_postgres
    return [
        StagedRow(offset, _json(dict(zip(columns, row, strict=True)), plain))
        for offset, row in zip(offsets, zip(*values, strict=True), strict=True)
    ]


def _exact(values: list[Any], sqlite: bool) -> list[Any]:
    """JSON has no infinities and no NaN: PostgreSQL knows them by name, SQLite has no NaN and takes null for it."""
    if not any(isinstance(one, float) and one - one != 0 for one in values):
        return values
    if sqlite and any(isinstance(one, float) and one in (float("inf"), float("-inf")) for one in values):
        raise InvalidPayload("A row has an infinite number, which cannot be brought into a table of SQLite.")
    return [str(one) if isinstance(one, float) and one - one != 0 and not sqlite else one for one in values]


def _json(row: dict[str, Any], plain: Callable[[Any], Any]) -> bytes:
    try:
        return orjson.dumps(row, default=plain, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"A row cannot be brought into the table: {error}.") from error


def _in_postgres(value: Any) -> Any:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else _text(value)


def _in_sqlite(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else _text(value)


def _text(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
