"""Ingest files with Spark: one Spark job stages the rows of some files, one transaction appends them.

A file is recorded in the transaction that appends its rows. Whatever is killed, its rows are appended once.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from penstock.core.entry import Entry
from penstock.core.event import NewEvent
from penstock.core.ingested import FileBatch, Ingested
from penstock.declare.ingest import Ingest
from penstock.declare.source import SourceBatch
from penstock.errors import DuplicateMismatch, InvalidInput, PenstockError, SourceUnavailable
from penstock.log import files
from penstock.log.ingest import Ingests
from penstock.log.log import Log
from penstock.log.staging import Staged, Staging
from penstock.spark import secrets
from penstock.spark.causes import failure_of
from penstock.spark.logs import log_at
from penstock.spark.pipelines.sinks.hadoop_folder import list_files

FILES = 200  # in one Spark job, at most
BYTES = 512 * 1024 * 1024  # of one Spark job's files, about
_CHUNK = 2_000  # rows whose events are staged in one transaction
_SAID = ["attempt", "events", "rejected", "dropped"]  # what a task says
_SCHEMA = "attempt string, events bigint, rejected bigint, dropped bigint"
_PATTERN = re.compile(r"[\\\[\]{}*?]")  # what a name may have in it, and Spark would take for a pattern
_CSV = {"header": True, "quote": '"', "escape": '"', "multiLine": True}  # RFC 4180
_BROKEN = "_penstock_broken_row"  # a column with what does not fit the header
_TIME = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"
_JSON = {"ignoreNullFields": "false", "timestampFormat": f"{_TIME}XXX", "timestampNTZFormat": _TIME}


def on_spark(ingest: Ingest, log: Log, spark: Any) -> Ingest:
    """Return an ingest of files with a source that a session reads."""
    return replace(ingest, source=FilesOnSpark(ingest, log, spark))


@dataclass(slots=True)
class FilesOnSpark:
    """Files as a source that an ingester can open."""

    ingest: Ingest
    log: Log
    spark: Any

    @property
    def name(self) -> str:
        return self.ingest.source.name

    def open(self, ingests: Ingests) -> FileReader:
        """Nothing needs to be connected: the session is."""
        return FileReader(self.ingest, self.log, self.spark)

    def fields_of(self, entry: Entry) -> Any:
        return self.ingest.source.fields_of(entry)


class FileReader:
    """Reads new files; a batch is what one Spark job has staged of some of them."""

    def __init__(self, ingest: Ingest, log: Log, spark: Any) -> None:
        self._ingest = ingest
        self._files: Any = ingest.source
        self._log = log
        self._spark = spark
        self._safe_url = secrets.hide(spark, log.store.url)
        self._drained = False
        self._look_again = 0.0
        self._carefully = False  # a batch was refused: look which rows have the ids of other events
        self.source = ingest.name  # with the stream: the same file may go into several, as other events

    def read(self, seconds: float) -> SourceBatch | None:
        """Stage the rows of the next new files."""
        if time.monotonic() < self._look_again:
            time.sleep(seconds)
            return None
        names = self._new_files()
        self._drained = not names
        if not names:
            self._look_again = time.monotonic() + self._files.poll_seconds
            return None
        staging = self._staging(f"files:{uuid.uuid4()}")
        try:
            batch = self._stage(names, staging.writer)
            if self._carefully:
                refused = files.refused_rows(self._log.store, batch.staged)
                if refused:
                    staging.abort_all()
                    batch = self._stage(names, staging.writer, refused)
            return SourceBatch((), batch)
        except BaseException as error:
            staging.abort_all()
            if isinstance(error, PenstockError) or not isinstance(error, Exception):
                raise
            # A file that vanished or cannot be read, or a Spark that lost its executors: it may be put right.
            raise SourceUnavailable(f"{self.source} cannot be read: {failure_of(error).message}") from error

    def acknowledge(self, batch: SourceBatch, ingested: Ingested) -> None:
        """The files are recorded; drop what tasks staged that counts for nothing."""
        self._carefully = False
        self._drop(batch)

    def overtaken(self, batch: SourceBatch) -> None:
        """Another ingester has taken a file, or a row has the id of another event."""
        self._carefully = True
        self._drop(batch)

    def _drop(self, batch: SourceBatch) -> None:
        assert isinstance(batch.mark, FileBatch)
        self._staging(batch.mark.writer).abort_all()

    def rest(self, idle: bool) -> None:
        """There is nothing to do."""

    def drained(self) -> bool:
        return self._drained

    def close(self) -> None:
        """The session is not ours."""

    def _staging(self, writer: str) -> Staging:
        return Staging(self._log.store, self._ingest.into, writer, 0)

    def _new_files(self) -> list[str]:
        """Return the files that one Spark job should read; those of a CSV may differ in their columns."""
        try:
            sizes = {one.path: one.size for one in list_files(self._spark, self._files.path)}
        except OSError as error:
            raise SourceUnavailable(f"{self._files.path} cannot be listed: {error}.") from error
        taken: list[str] = []
        most = 1 if self._files.kind == "csv" else FILES
        for name in files.new_files(self._log.store, self._ingest.into, sorted(sizes)):
            if len(taken) == most or (taken and sum(sizes[one] for one in (*taken, name)) > BYTES):
                break
            taken.append(name)
        return taken

    def _stage(self, names: Sequence[str], writer: str, refused: Set[int] = frozenset()) -> FileBatch:
        """Run a Spark job; return what its tasks have staged. Rows whose numbers are `refused` are rejected."""
        url, ingest, source, carefully = self._safe_url, self._ingest, self.source, self._carefully

        def task(batches: Iterator[Any]) -> Iterator[Any]:
            import pyarrow as pa

            rejected = dropped = 0

            def chunks() -> Iterator[tuple[list[NewEvent], list[int] | None]]:
                nonlocal rejected, dropped
                for entries in _entries(batches):
                    made = ingest.made_of(source, entries)
                    events = [*made.events]
                    numbers = [_number(entry.position) for entry in entries] if carefully else []
                    taken = [place for place, number in enumerate(numbers) if number in refused]
                    for place in taken:
                        events[place] = made.reject(place, DuplicateMismatch("The event id is taken by another event."))
                    rejected += len(made.rejected.union(taken))
                    kept = [event for event in events if event is not None]
                    dropped += len(entries) - len(kept)
                    sources = [number for number, event in zip(numbers, events, strict=False) if event is not None]
                    yield kept, sources or None

            done = Staging(log_at(url).store, ingest.into, writer, 0).stage(chunks())
            said = [[str(done.attempt)], [done.events], [rejected], [dropped]]
            yield pa.RecordBatch.from_arrays([pa.array(one) for one in said], names=_SAID)

        answers = self._rows(names).mapInArrow(task, _SCHEMA).collect()
        staged = [Staged(uuid.UUID(row["attempt"]), row["events"]) for row in answers]
        rejected, dropped = (sum(row[name] for row in answers) for name in _SAID[2:])
        return FileBatch(self._ingest.into, names, writer, staged, rejected, dropped)

    def _rows(self, names: Sequence[str]) -> Any:
        """Return the rows of files as bytes, each with its file, the byte at which its part of it begins, and whether
        it is broken."""
        from pyspark.sql import functions as F

        read = self._spark.read
        paths = [_PATTERN.sub(r"\\\g<0>", name) for name in names]
        place = ("_metadata.file_path", "_metadata.file_block_start")
        if self._files.kind == "jsonl":
            lines = read.text(paths)
            return lines.select(F.col("value").cast("binary").alias("body"), *place, F.lit(False).alias("broken"))

        def rows(path: str) -> Any:
            table = read.parquet(path) if self._files.kind == "parquet" else read.options(**_header_of(path)).csv(path)
            body = F.to_json(F.struct(*map(_quoted, table.columns)), _JSON)
            broken = F.lit(False)
            if self._files.kind == "csv" and table.columns:
                schema = table.schema.add(_BROKEN, "string")
                table = read.options(**_CSV, columnNameOfCorruptRecord=_BROKEN).schema(schema).csv(path)
                body, broken = F.coalesce(F.col(_BROKEN), body), F.col(_BROKEN).isNotNull()
            return table.select(body.cast("binary").alias("body"), *place, broken.alias("broken"))

        return reduce(lambda one, other: one.unionAll(other), map(rows, paths))  # each with its own columns


def _header_of(path: str) -> dict[str, Any]:
    """Return how to read the header of a CSV. If lines may be broken, Spark takes even escaped names for patterns."""
    return {**_CSV, "multiLine": _PATTERN.search(path) is None}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _number(position: str) -> int:
    """Return a number for a row that is the same in every attempt."""
    return int.from_bytes(hashlib.blake2b(position.encode(), digest_size=8).digest(), "big", signed=True)


def _entries(batches: Iterator[Any]) -> Iterator[list[Entry]]:
    """Yield the rows of a task in chunks; blank lines are passed over."""
    place: tuple[str, int] = ("", 0)
    number = 0
    found: list[Entry] = []
    for batch in batches:
        columns = (batch.column(position).to_pylist() for position in range(4))
        for body, path, start, broken in zip(*columns, strict=True):
            number = number + 1 if (path, start) == place else 0
            place = path, start
            if body.strip():
                error = InvalidInput("the row does not have as many values as the header.") if broken else None
                found.append(Entry(f"{path}@{start}+{number}", value=body, error=error))
            if len(found) == _CHUNK:
                yield found
                found = []
    if found:
        yield found
