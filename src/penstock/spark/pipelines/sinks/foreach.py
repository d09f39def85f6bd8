"""Call the user's function for every batch: at least once, with an id that identifies its events."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence, Set
from typing import Any

from penstock.core.lease import LeaseRow
from penstock.sinks import ForeachBatch
from penstock.spark.pipelines.failures import ERROR, OFFSET, TEXT_LENGTH
from penstock.spark.pipelines.sinks.base import Aside, Move, Written


class ForeachWriter:
    """The sink `ForeachBatch`."""

    def __init__(self, sink: ForeachBatch) -> None:
        self._sink = sink

    def check(self, schema: Any) -> Sequence[str]:
        """Accept any rows."""
        return [name for name in schema.names if name != ERROR]

    def write(self, rows: Any, piece: LeaseRow) -> Written:
        if ERROR not in rows.columns:
            self._sink.function(rows, batch_id(piece))
            return Written([], {}, None)
        # Evaluated once: an executor that is lost with its part of it fails the Spark job, and the batch is done again.
        kept = rows.localCheckpoint(eager=True)
        failed = errors_of(kept)
        good = without_events(kept.where(f"{ERROR} is null").drop(ERROR), failed)
        self._sink.function(good, batch_id(piece))
        return Written([], failed, None)

    def move(self, row: LeaseRow, aside: Sequence[Aside], failed: Set[int]) -> Move | None:
        return None

    def finish(self) -> None:
        """Do nothing: nothing is staged."""

    def clean(self) -> None:
        """Do nothing: nothing is staged."""


def errors_of(rows: Any) -> dict[int, str]:
    """Return one error of each event that has a row with one, by offset."""
    from pyspark.sql import functions as f

    text = f.substring(f.col(ERROR).cast("string"), 1, TEXT_LENGTH)
    failed = rows.where(f.col(ERROR).isNotNull()).groupBy(OFFSET).agg(f.min(text).alias(ERROR))
    return {row[OFFSET]: row[ERROR] for row in failed.collect()}


def without_events(rows: Any, failed: Collection[int]) -> Any:
    """Return the rows of all events but these."""
    if not failed:
        return rows
    return of_events(rows, failed, "left_anti")


def of_events(rows: Any, offsets: Collection[int], how: str) -> Any:
    """Return the rows of these events (`left_semi`), or those of all others (`left_anti`)."""
    listed = rows.sparkSession.createDataFrame([(offset,) for offset in offsets], "listed bigint")
    return rows.join(listed, rows[OFFSET] == listed["listed"], how)


def batch_id(piece: LeaseRow) -> str:
    """Return an id of exactly these events, the same for every claim; a replay is another batch.

    For retried events, which are scattered, it holds the first, the last and a digest of all offsets.
    """
    place = f"{piece.low}-{piece.high}"
    if piece.offsets is not None:
        listed = ",".join(map(str, piece.offsets)).encode()
        place = f"{piece.offsets[0] - 1}-{piece.offsets[-1]}-{hashlib.sha256(listed).hexdigest()[:12]}"
    return f"{piece.stream}/{piece.group_name}/{place}" + (f"+{piece.replay}" if piece.replay else "")
