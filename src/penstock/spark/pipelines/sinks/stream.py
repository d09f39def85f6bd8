"""Append rows as events to another stream of the same log, in the settle's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from penstock.core.event import NewEvent
from penstock.core.lease import LeaseRow
from penstock.errors import InvalidInput, InvalidPipeline
from penstock.log import staging
from penstock.log.log import Log
from penstock.log.pipelines import WRITER, PipelineStore
from penstock.log.refused import Refused, refused_events, try_events
from penstock.log.staging import Staging
from penstock.sinks import Stream
from penstock.spark.logs import log_at
from penstock.spark.pipelines.failures import ERROR, OFFSET
from penstock.spark.pipelines.sinks.base import Aside, Move, Written, put_aside, staged
from penstock.spark.rows import check_columns, events_of

_WHOLE_EVENT = frozenset({"offset", "event_id", "created_at", "stream"})


class StreamWriter:
    """The sink `Stream`."""

    def __init__(self, log: Log, safe_url: str, sink: Stream) -> None:
        self._store = log.store
        self._staged = PipelineStore(log.store)
        self._safe_url = safe_url
        self._sink = sink

    def check(self, schema: Any) -> Sequence[str]:
        hidden = {ERROR, OFFSET} if ERROR in schema.names else {ERROR}
        names = [name for name in schema.names if name not in hidden]
        try:
            check_columns(names, self._sink.type, self._sink.key)
        except InvalidInput as error:
            raise InvalidPipeline(f"The result cannot become events of {self._sink.name!r}: {error.message}") from error
        if {*schema.names} >= _WHOLE_EVENT:
            raise InvalidPipeline(
                "The result has the event_id of its input events, and ids are unique in a log: "
                "drop the column event_id, or make a new one."
            )
        return names

    def write(self, rows: Any, piece: LeaseRow) -> Written:
        url, sink, lease, may_fail = self._safe_url, self._sink, piece.id, ERROR in rows.columns

        def chunk(batch: Any) -> tuple[list[NewEvent], list[int] | None]:
            sources = batch.column(OFFSET).to_pylist() if OFFSET in batch.schema.names else None
            rows = batch.drop_columns([OFFSET]) if may_fail else batch
            return events_of(rows, sink.name, sink.type, sink.key), sources

        def stage(batches: Iterator[Any]) -> Aside:
            store = log_at(url).store
            done = Staging(store, sink.name, WRITER, lease).stage(map(chunk, batches))
            return Aside(str(done.attempt), done.events)

        return put_aside(rows, stage)

    def move(self, row: LeaseRow, aside: Sequence[Aside], failed: Set[int]) -> Move | None:
        named = staged(aside)
        return (lambda tx: staging.append(tx, named, failed)) if named else None

    def refused(self, aside: Sequence[Aside], failed: Set[int]) -> Refused | None:
        return refused_events(self._store, staged(aside), failed)

    def try_out(self, aside: Sequence[Aside]) -> str | None:
        return try_events(self._store, staged(aside))

    def finish(self) -> None:
        """Do nothing: the settle did everything."""

    def clean(self) -> None:
        self._staged.drop_leftovers()
