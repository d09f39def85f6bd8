"""`df.write` and `df.writeStream`: append the rows of a DataFrame exactly once, whatever Spark retries.

A task attempt stages its rows under a unique id, and its commit message names it. The commit, one transaction on the
driver's side, appends the rows of the named attempts and records the batch. What other attempts staged stays invisible
and is dropped; a batch that is repeated is already recorded, and appends nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.errors import InvalidInput, InvalidOption, PenstockError
from penstock.log.staging import Staged, Staging
from penstock.spark import machine, rows
from penstock.spark.logs import log_at
from penstock.spark.source.options import WriteOptions

logger = logging.getLogger("penstock")
_SET_BY_THE_LOG = frozenset({"offset", "created_at", "stream"})  # ignored, so that events that were read can be written


@dataclass(frozen=True, slots=True)
class Wrote(WriterCommitMessage):
    """The commit message of a task attempt: what it staged, for which writer."""

    staged: Staged
    writer: str


class _Writer:
    """The part that both writers share."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._driver = machine.here()
        machine.check_driver(options.url)
        check_columns(options, columns)

    def _stage(self, batches: Iterator[Any], writer: str, batch: int) -> Wrote:
        machine.check_here(self._options.url, self._driver)
        stream, kind, key = self._options.stream, self._options.type, self._options.ordering_key
        chunks = ((rows.events_of(one, stream, kind, key), None) for one in batches)
        return Wrote(self._staging(writer, batch).stage(chunks), writer)

    def _staging(self, writer: str, batch: int) -> Staging:
        return Staging(log_at(self._options.url).store, self._options.stream, writer, batch)


class PenstockBatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of a DataFrame; with the option `batch_id`, repeating the write appends nothing."""

    def __init__(self, options: WriteOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._writer = f"write:{uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._stage(iterator, self._writer, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        name = self._options.batch_id
        key = None if name is None else f"batch_id:{name}"
        self._staging(self._writer, 0).commit([one.staged for one in _named(messages)], key=key)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with _aborting():
            self._staging(self._writer, 0).abort_all()


class PenstockStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of a streaming query's micro-batches; a repeated one appends nothing."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if query is None or batch is None:
            raise InvalidInput("This task does not belong to a streaming query: use df.write.")
        return self._stage(iterator, f"query:{query}", int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        wrote = _named(messages)
        if wrote:
            self._staging(wrote[0].writer, batchId).commit([one.staged for one in wrote])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what is named here; what failed attempts staged is dropped when the batch is repeated and commits."""
        wrote = _named(messages)
        if wrote:
            with _aborting():
                self._staging(wrote[0].writer, batchId).abort([one.staged for one in wrote])


def check_columns(options: WriteOptions, columns: Sequence[str]) -> None:
    """Check that rows with these columns can become events, and that no column would be lost silently."""
    rows.check_columns(columns, options.type, options.ordering_key)
    if "payload" not in columns:
        return
    odd = [one for one in columns if one not in {*rows.FIELDS, *_SET_BY_THE_LOG, options.ordering_key}]
    if odd:
        raise InvalidOption(
            f"Beside `payload`, the column {odd[0]!r} would be lost: drop it, or put it into the payload. "
            f"The columns of an event are {', '.join(rows.FIELDS)}."
        )


@contextmanager
def _aborting() -> Iterator[None]:
    """Log errors of an abort: the user must see its cause, and what stays staged is invisible and dropped later."""
    try:
        yield
    except PenstockError as error:
        logger.warning("staged rows of a failed write were not dropped yet: %s", error)


def _named(messages: Sequence[WriterCommitMessage | None]) -> list[Wrote]:
    return [one for one in messages if isinstance(one, Wrote)]
