"""`spark.read`: events, deliveries, dead letters and attempts up to the horizon, in about equal partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.core.limits import STATEMENT_BYTES
from penstock.errors import InvalidOption, UnknownGroup
from penstock.log import groups, partitions
from penstock.log.transact import Transaction
from penstock.spark import machine
from penstock.spark.logs import log_at
from penstock.spark.source import archived, shapes
from penstock.spark.source.options import ReadOptions

# Columns whose filters go to the database; Spark does the rest.
_PUSHED = {
    "events": {"offset", "event_type", "created_at"},
    "deliveries": {"offset", "event_type", "state", "group_name"},
    "dead": {"offset", "event_type", "created_at", "group_name"},
    "attempts": {"offset", "event_type", "group_name"},
}

_BY_OFFSET = ("events", "dead")  # one row for each offset, read in its order
_FIRST_ROWS = 1_000  # of a partition; from then on their size is known


@dataclass(slots=True)
class Piece(InputPartition):
    """What one task reads: everything in (low, high], of one group if it reads deliveries."""

    low: int
    high: int
    group_id: int | None


class PenstockReader(DataSourceReader):
    """The batch reader: plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._wanted = options.wanted
        self._schema = schema
        self._driver = machine.here()
        check_schema(options.what, schema)

    # --- on the driver -------------------------------------------------------------------------------------------

    def partitions(self) -> list[InputPartition]:
        """Cut the offsets up to the current horizon into ranges."""
        machine.check_driver(self._options.url)
        log = log_at(self._options.url)
        log.store.check_arrow()  # fail here, not in a task
        with log.store.transaction(write=False) as tx:
            if self._options.what == "events":
                ranges = archived.together(self._ranges(tx), self._archived(tx))
                return [Piece(low, high, None) for low, high in ranges]
            ranges = self._ranges(tx)
            return [Piece(low, high, group) for group in self._groups(tx) for low, high in ranges]

    def _archived(self, tx: Transaction) -> list[tuple[int, int]]:
        return archived.ranges(tx, self._options.stream, self._wanted) if self._options.archive else []

    def _groups(self, tx: Transaction) -> list[int]:
        options, wanted = self._options, self._wanted.groups
        known = groups.every(tx, options.stream)
        if options.group is not None:
            known = [one for one in known if one.group_name == options.group]
            if not known:
                raise UnknownGroup(f"There is no group {options.group!r} on {options.stream!r}.")
        return [one.group_id for one in known if wanted is None or one.group_name in wanted]

    def _ranges(self, tx: Transaction) -> list[tuple[int, int]]:
        options, wanted = self._options, self._wanted
        low, high = partitions.bounds(
            tx, options.stream, after=wanted.after, upto=wanted.upto, since=wanted.since, until=wanted.until
        )
        if low >= high:
            return []
        if options.partitions is None and options.what in ("dead", "attempts"):
            return [(low, high)]  # exception rows are few, and may be anywhere
        if options.partitions is not None:
            return partitions.cut(tx, options.stream, low, high, options.partitions, exactly=True)
        return partitions.cut_by_size(tx, options.stream, low, high, payloads="payload" in self._schema.names)

    # --- in the tasks --------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a partition as Arrow record batches."""
        if not isinstance(partition, Piece):  # Spark's placeholder for no partitions
            return
        from pyspark.sql.pandas.types import to_arrow_schema

        options = self._options
        machine.check_here(options.url, self._driver)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        if options.archive:
            with_archive = archived.Reading(options.url, options.stream, self._wanted, schema)
            yield from with_archive.read(partition.low, partition.high, partial(self._in_statements, partition))
        elif options.what in _BY_OFFSET:
            yield from self._in_statements(partition, schema)
        else:
            yield from list(self._statement(schema, self._params(partition)))

    def _in_statements(self, piece: Piece, schema: Any) -> Iterator[Any]:
        """Read in statements that bring about `STATEMENT_BYTES` each, and end before Spark gets what they brought."""
        low, most = piece.low, _FIRST_ROWS
        wanted = schema if "offset" in schema.names else schema.append(_offset_field())
        while True:
            batches = list(self._statement(wanted, self._params(piece) | {"low": low, "most": most}))
            rows, size = sum(map(len, batches)), sum(batch.nbytes for batch in batches)
            if rows:
                low = batches[-1].column("offset")[-1].as_py()
            yield from (batch.select(schema.names) for batch in batches)
            if rows < most:
                return
            most = max(1, min(2 * most, most * STATEMENT_BYTES // max(1, size)))

    def _statement(self, schema: Any, params: dict[str, Any]) -> Iterator[Any]:
        """Run one statement; the database reads only the columns of the schema."""
        what, stream = self._options.what, self._options.stream
        columns = list(shapes.types_of(what))
        places = [columns.index(name) for name in schema.names]
        stored = [name for name in schema.names if what != "events" or name != "stream"]
        for found in log_at(self._options.url).store.read_pieces(f"source.{what}", stored or ["offset"], **params):
            if isinstance(found, list):
                yield shapes.from_rows(found, places, schema)
            else:
                yield shapes.from_arrow(found, schema, stream)

    def _params(self, piece: Piece) -> dict[str, Any]:
        wanted = self._wanted
        return {
            "stream": self._options.stream,
            "group_id": piece.group_id,
            "low": piece.low,
            "high": piece.high,
            "types": None if wanted.types is None else list(wanted.types),
            "states": None if wanted.states is None else list(wanted.states),
            "since": wanted.since,
            "until": wanted.until,
            "payload": "payload" in self._schema.names,
            "most": 2**62,
        }


class PushingReader(PenstockReader):
    """A reader that accepts filters from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters that the database can apply; return the rest to Spark."""
        for one in filters:
            column = ".".join(getattr(one, "attribute", ()))
            known = column in _PUSHED[self._options.what]
            value = getattr(one, "value", None)
            narrower = self._wanted.narrowed(column, type(one).__name__, value) if known else None
            if narrower is None:
                yield one
            else:
                self._wanted = narrower


def _offset_field() -> Any:
    import pyarrow as pa

    return pa.field("offset", pa.int64())


def check_schema(what: str, schema: StructType) -> None:
    """Check that a user's schema only leaves columns out; `InvalidOption` otherwise."""
    known = shapes.types_of(what)
    for field in schema.fields:
        kind = field.dataType.simpleString().replace("<string,string>", "<>")
        if known.get(field.name) != kind:
            expected = shapes.ddl_of(what, list(known))
            raise InvalidOption(f"{what} have no column {field.name} {field.dataType.simpleString()}: {expected}.")
