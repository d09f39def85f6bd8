"""The sink of a query: one Spark job stages the rows of a micro-batch, one transaction moves them, once per batch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.core.lease import LeaseId, LeaseRow, Token
from penstock.declare.query import Query
from penstock.errors import InvalidPipeline, InvalidQuery, StagedLost
from penstock.log import queries
from penstock.log.log import Log
from penstock.log.queries import MicroBatch
from penstock.spark.pipelines.sinks.choose import writer_for
from penstock.spark.source.micro_batch import claims_of, query_id

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class QueryWriter:
    """Writes the micro-batches of one query."""

    def __init__(self, log: Log, safe_url: str, query: Query) -> None:
        self._log = log
        self._query = query
        self._sink = writer_for(log, safe_url, query.sink)

    def check(self, schema: Any) -> None:
        """Check that rows of this schema can be written; `InvalidQuery` otherwise."""
        try:
            self._sink.check(schema)
        except InvalidPipeline as error:
            raise InvalidQuery(error.message) from error

    def write(self, rows: Any, number: int) -> None:
        """Write a micro-batch, called by Spark for `foreachBatch`; one that was written before changes nothing.

        Its Spark job runs in any case: Spark's own state is written by it.
        """
        batch = MicroBatch(f"{type(self._query.sink).__name__}:{self._query.name}", query_id(rows, number), number)
        claims = [(claim.reader, claim.claim) for claim in claims_of(rows, number)]
        piece = self._piece(batch)
        written = self._sink.write(rows, piece)
        if written.skipped:
            raise StagedLost("A task of the batch was repeated, and may have given other rows.")
        move = self._sink.move(piece, written.aside, written.failed.keys())
        staged = sum(one.rows for one in written.aside)
        queries.commit(self._log.store, batch, staged, move, written.failed, claims)

    def _piece(self, batch: MicroBatch) -> LeaseRow:
        """Return what sinks take for a lease. A micro-batch is none, so it has a number that no lease has."""
        return LeaseRow(
            LeaseId(batch.staged_as),
            Token(0),
            self._query.stream,
            self._query.group,
            group_id=0,
            lane=0,
            lanes=1,
            binding=0,
            low=None,
            high=None,
            holes=(),
            offsets=(),
            members=0,
            attempts=0,
            replay=0,
            claimed_by="",
            claimed_at=_LONG_AGO,
            expires_at=_LONG_AGO,
        )
