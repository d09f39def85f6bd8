"""Ingest files with Spark: one Spark job stages the rows of some files, one transaction appends them.

A file is recorded in the transaction that appends its rows. Whatever is killed, its rows are appended once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.event import NewEvent
from penstock.log import files
from penstock.log.log import Log
from penstock.log.staging import Staged, Staging
from penstock.spark import secrets
from penstock.spark.logs import log_at
from penstock.spark.pipelines.sinks.hadoop_folder import list_files

FILES = 200  # in one Spark job, at most
BYTES = 512 * 1024 * 1024  # of one Spark job's files, about
_CHUNK = 2_000  # events that are staged in one transaction

Convert = Callable[[Any, str], list[NewEvent]]  # of a row and its file: the event, or what was rejected of it


@dataclass(frozen=True, slots=True)
class FileRows:
    """Which files to read, and how their rows become events."""

    path: str  # a file, a folder or a pattern
    kind: str  # jsonl, csv or parquet
    into: str
    convert: Convert


class FileIngest:
    """Appends the rows of new files to a stream."""

    def __init__(self, log: Log, spark: Any, rows: FileRows) -> None:
        self._log = log
        self._spark = spark
        self._rows = rows
        self._safe_url = secrets.hide(spark, log.store.url)

    def poll(self) -> tuple[int, int]:
        """Take the next new files; returns how many, and how many events they gave. Zeros: there is nothing new."""
        found = {one.path: one.size for one in list_files(self._spark, self._rows.path)}
        names = self._some(files.new_files(self._log.store, self._rows.into, sorted(found)), found)
        if not names:
            return 0, 0
        staging = Staging(self._log.store, self._rows.into, f"files:{uuid.uuid4()}", 0)
        try:
            staged = self._stage(names, staging.writer)
            appended = files.append_files(self._log.store, self._rows.into, names, staged)
        finally:
            staging.abort_all()  # what tasks staged that count for nothing
        return len(names), sum(one.events for one in staged) if appended else 0

    def _some(self, names: Sequence[str], sizes: dict[str, int]) -> list[str]:
        """Return the first files that one Spark job should read; those of a CSV may differ in their columns."""
        most = 1 if self._rows.kind == "csv" else FILES
        taken: list[str] = []
        size = 0
        for name in names[:most]:
            if taken and size + sizes[name] > BYTES:
                break
            taken.append(name)
            size += sizes[name]
        return taken

    def _stage(self, names: Sequence[str], writer: str) -> list[Staged]:
        url, into, convert = self._safe_url, self._rows.into, self._rows.convert

        def chunks(batches: Iterator[Any]) -> Iterator[tuple[list[NewEvent], None]]:
            events: list[NewEvent] = []
            for batch in batches:
                for body, name in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                    events += convert(body, name)
                    if len(events) >= _CHUNK:
                        yield events, None
                        events = []
            yield events, None

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            done = Staging(log_at(url).store, into, writer, 0).stage(chunks(batches))
            yield pa.RecordBatch.from_pydict({"attempt": [str(done.attempt)], "events": [done.events]})

        answers = self._read(names).mapInArrow(task, "attempt string, events bigint").collect()
        return [Staged(uuid.UUID(row["attempt"]), row["events"]) for row in answers]

    def _read(self, names: Sequence[str]) -> Any:
        """Return the rows of files as JSON or, of text, as bytes, each with the name of its file."""
        from pyspark.sql import functions as F

        read = self._spark.read
        if self._rows.kind == "jsonl":
            body = F.col("value").cast("binary")
            return read.text(list(names)).select(body, F.col("_metadata.file_path"))
        table = read.option("header", True).csv(list(names)) if self._rows.kind == "csv" else read.parquet(*names)
        whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).cast("binary")
        return table.select(whole, F.col("_metadata.file_path"))
