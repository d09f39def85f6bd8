"""Call the user's function for every batch: at least once, with an id that identifies its events."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from penstock.core.lease import LeaseRow
from penstock.sinks import ForeachBatch
from penstock.spark.pipelines.sinks.base import Aside, Move


class ForeachWriter:
    """The sink `ForeachBatch`."""

    without: tuple[str, ...] = ()

    def __init__(self, sink: ForeachBatch) -> None:
        self._sink = sink

    def check(self, schema: Any) -> None:
        """Accept any rows."""

    def write(self, rows: Any, piece: LeaseRow) -> list[Aside]:
        self._sink.function(rows, batch_id(piece))
        return []

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        return None

    def finish(self) -> None:
        """Do nothing: nothing is staged."""

    def clean(self) -> None:
        """Do nothing: nothing is staged."""


def batch_id(piece: LeaseRow) -> str:
    """Return an id of exactly these events, the same for every claim; a replay is another batch.

    For retried events, which are scattered, it holds the first, the last and a digest of all offsets.
    """
    place = f"{piece.low}-{piece.high}"
    if piece.offsets is not None:
        listed = ",".join(map(str, piece.offsets)).encode()
        place = f"{piece.offsets[0] - 1}-{piece.offsets[-1]}-{hashlib.sha256(listed).hexdigest()[:12]}"
    return f"{piece.stream}/{piece.group_name}/{place}" + (f"+{piece.replay}" if piece.replay else "")
