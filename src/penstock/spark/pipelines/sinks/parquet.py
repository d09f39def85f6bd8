"""Parquet files that tasks write with pyarrow, under hidden names until the settle: see `late_names`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence, Set
from typing import Any

from penstock.core.lease import LeaseRow
from penstock.core.signals import Unavailable
from penstock.errors import InvalidPipeline
from penstock.log.archives.places import filesystem, is_on_disk, to_disk
from penstock.sinks import Parquet
from penstock.spark.pipelines.failures import ERROR, OFFSET
from penstock.spark.pipelines.sinks.base import Aside, Move, Written, put_aside
from penstock.spark.pipelines.sinks.folders import HIDDEN, check_writable
from penstock.spark.pipelines.sinks.late_names import LateNames
from penstock.spark.session import is_local


class ParquetWriter:
    """The sink `Parquet` for local folders and object storage that pyarrow knows."""

    def __init__(self, sink: Parquet, master: str, names: LateNames) -> None:
        self._sink = sink
        self._master = master
        self._names = names
        self._folder = sink.folder

    def check(self, schema: Any) -> Sequence[str]:
        names = [name for name in schema.names if name != ERROR]
        if not names:
            raise InvalidPipeline("The result has no columns.")
        if self._sink.is_local and not self._sink.shared and not is_local(self._master):
            raise InvalidPipeline(
                f"{self._sink.path} is a path on the machine of each task, and {self._master} has tasks elsewhere. "
                "Write to shared storage, or say Parquet(…, shared=True) if every machine has mounted it at this path."
            )
        check_writable(self._folder)
        return names

    def write(self, rows: Any, piece: LeaseRow) -> Written:
        folder, compression = self._folder, self._sink.compression
        start = self._names.start(piece.id)

        def stage(batches: Iterator[Any]) -> Aside:
            name = f"{start}-{uuid.uuid4().hex}.parquet"
            try:
                return Aside(name, write_file(folder, name, batches, compression))
            except OSError as error:
                raise Unavailable(f"{folder} cannot be written: {error}") from error

        written = put_aside(rows, stage)
        if not written.failed:
            return written
        failed = written.failed.keys()
        kept = [without_events(folder, one, f"{start}-{uuid.uuid4().hex}.parquet", failed) for one in written.aside]
        return written._replace(aside=[one for one in kept if one.rows])

    def move(self, row: LeaseRow, aside: Sequence[Aside], failed: Set[int]) -> Move | None:
        return self._names.move(row, aside)

    def finish(self) -> None:
        self._names.finish()

    def clean(self) -> None:
        self._names.clean()


def write_file(folder: str, name: str, batches: Iterator[Any], compression: str) -> int:
    """Write one hidden file and sync it to disk; return its rows. Without rows there is no file."""
    from pyarrow import parquet

    files, root = filesystem(folder)
    rows = 0
    writer = None
    try:
        for batch in batches:
            if len(batch) == 0:
                continue
            if writer is None:
                path = f"{root}/{HIDDEN}/{name}"
                writer = parquet.ParquetWriter(path, batch.schema, filesystem=files, compression=compression)
            writer.write_batch(batch)
            rows += len(batch)
    finally:
        if writer is not None:
            writer.close()
    if rows and is_on_disk(files):
        to_disk(f"{root}/{HIDDEN}/{name}")
    return rows


def without_events(folder: str, one: Aside, name: str, failed: Set[int]) -> Aside:
    """Copy a hidden file without the rows of failed events, under another name; the same file if it has none."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    files, root = filesystem(folder)
    with files.open_input_file(f"{root}/{HIDDEN}/{one.name}") as source:
        file = parquet.ParquetFile(source)
        unwanted = pa.array(sorted(failed), pa.int64())
        has = pc.is_in(file.read([OFFSET]).column(0), unwanted)
        count = pc.sum(has).as_py() or 0
        if not count:
            return one
        compression = file.metadata.row_group(0).column(0).compression.lower()
        batches = (batch.filter(pc.invert(pc.is_in(batch.column(OFFSET), unwanted))) for batch in file.iter_batches())
        return Aside(name, write_file(folder, name, batches, compression))
