"""Append rows as events to another stream of the same log, in the settle's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.core.lease import LeaseRow
from penstock.errors import InvalidInput, InvalidPipeline
from penstock.log import staging
from penstock.log.log import Log
from penstock.log.pipelines import WRITER, PipelineStore
from penstock.log.staging import Staged, Staging
from penstock.sinks import Stream
from penstock.spark.logs import log_at
from penstock.spark.pipelines.sinks.base import Aside, Move, put_aside
from penstock.spark.rows import check_columns, events_of

_WHOLE_EVENT = frozenset({"offset", "event_id", "created_at", "stream"})


class StreamWriter:
    """The sink `Stream`."""

    without: tuple[str, ...] = ("offset",)

    def __init__(self, log: Log, safe_url: str, sink: Stream) -> None:
        self._staged = PipelineStore(log.store)
        self._safe_url = safe_url
        self._sink = sink

    def check(self, schema: Any) -> None:
        try:
            check_columns(schema.names, self._sink.type, self._sink.key)
        except InvalidInput as error:
            raise InvalidPipeline(f"The result cannot become events of {self._sink.name!r}: {error.message}") from error
        if {*schema.names} >= _WHOLE_EVENT:
            raise InvalidPipeline(
                "The result has the event_id of its input events, and ids are unique in a log: "
                "drop the column event_id, or make a new one."
            )

    def write(self, rows: Any, piece: LeaseRow) -> list[Aside]:
        url, sink, lease = self._safe_url, self._sink, piece.id

        def stage(batches: Iterator[Any]) -> Aside:
            store = log_at(url).store
            chunks = (events_of(one, sink.name, sink.type, sink.key) for one in batches)
            staged = Staging(store, sink.name, WRITER, lease).stage(chunks)
            return Aside(str(staged.attempt), staged.events)

        return put_aside(rows, stage)

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        named = [Staged(uuid.UUID(one.name), one.rows) for one in aside]
        return (lambda tx: staging.append(tx, named)) if named else None

    def finish(self) -> None:
        """Do nothing: the settle did everything."""

    def clean(self) -> None:
        self._staged.drop_leftovers()
