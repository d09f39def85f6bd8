"""Parquet files: written under hidden names, recorded in the settle's transaction, then renamed.

A driver that dies before the settle leaves hidden files that readers ignore. One that dies after it leaves a record in
the database, and the next driver renames the files. Renaming twice changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.core.lease import LeaseRow
from penstock.core.signals import Unavailable
from penstock.errors import InvalidPipeline
from penstock.log import pipelines
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore, Rename
from penstock.sinks import Parquet
from penstock.spark.pipelines.sinks.base import Aside, Move, put_aside

HIDDEN: Final = "_penstock"  # Parquet readers skip names that begin with an underscore
_NAME: Final = re.compile(r"part-(?P<mark>[0-9a-f]{8})-(?P<lease>\d+)-[0-9a-f]{32}\.parquet\Z")


class ParquetWriter:
    """The sink `Parquet`."""

    without: tuple[str, ...] = ()

    def __init__(self, log: Log, safe_url: str, sink: Parquet) -> None:
        self._staged = PipelineStore(log.store)
        self._sink = sink
        self._folder = sink.path if "://" in sink.path else os.path.abspath(sink.path)
        self._mark = hashlib.sha256(safe_url.encode()).hexdigest()[:8]  # of this log: others have the same lease ids

    def check(self, schema: Any) -> None:
        if not schema.names:
            raise InvalidPipeline("The result has no columns.")
        try:
            files, root = filesystem(self._folder)
            files.create_dir(f"{root}/{HIDDEN}", recursive=True)
        except (OSError, ValueError) as error:
            raise InvalidPipeline(f"{self._sink.path} cannot be written: {error}.") from error

    def write(self, rows: Any, piece: LeaseRow) -> list[Aside]:
        folder, compression, start = self._folder, self._sink.compression, f"part-{self._mark}-{piece.id}"

        def stage(batches: Iterator[Any]) -> Aside:
            name = f"{start}-{uuid.uuid4().hex}.parquet"
            try:
                return Aside(name, write_file(folder, name, batches, compression))
            except OSError as error:
                raise Unavailable(f"{folder} cannot be written: {error}") from error

        return put_aside(rows, stage)

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        renames = [Rename(f"{HIDDEN}/{one.name}", one.name) for one in aside]
        if not renames:
            return None
        return lambda tx: pipelines.note_renames(tx, row.id, self._folder, renames)

    def finish(self) -> None:
        due = self._staged.due_renames(self._folder)
        if not due:
            return
        files, root = filesystem(self._folder)
        for one in due.values():
            try:
                give_name(files, root, one)
            except OSError as error:
                raise Unavailable(f"{one.target} could not be renamed: {error}") from error
        self._staged.forget_renames(due)

    def clean(self) -> None:
        """Delete hidden files of ended leases that are not waiting to be renamed."""
        files, root = filesystem(self._folder)
        there = {name: int(found["lease"]) for name in _listed(files, root) if (found := _NAME.match(name))}
        mine = {name: lease for name, lease in there.items() if name.startswith(f"part-{self._mark}-")}
        ended = self._staged.ended(sorted(set(mine.values())))
        # Read this second: a lease that has ended recorded its renames in the same transaction.
        waiting = {one.target for one in self._staged.due_renames(self._folder).values()}
        for name, lease in mine.items():
            if lease in ended and name not in waiting:
                with suppress(FileNotFoundError):
                    files.delete_file(f"{root}/{HIDDEN}/{name}")


def filesystem(folder: str) -> tuple[Any, str]:
    """Return the file system of a folder, and its path in it."""
    from pyarrow import fs

    files, root = fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)
    return files, root.rstrip("/")


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
    if rows and _is_local(files):
        _to_disk(f"{root}/{HIDDEN}/{name}")
    return rows


def give_name(files: Any, root: str, one: Rename) -> None:
    """Rename a file; on object storage that is a copy and a delete. Do nothing if it was done before."""
    from pyarrow import fs

    source, target = files.get_file_info([f"{root}/{one.source}", f"{root}/{one.target}"])
    if source.type == fs.FileType.NotFound:
        if target.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"neither {one.source} nor {one.target} exists")
        return
    try:
        files.move(source.path, target.path)
    except FileNotFoundError:  # another driver was quicker
        if files.get_file_info(target.path).type == fs.FileType.NotFound:
            raise
    if _is_local(files):
        _to_disk(root)


def _listed(files: Any, root: str) -> list[str]:
    from pyarrow import fs

    selected = fs.FileSelector(f"{root}/{HIDDEN}", allow_not_found=True)
    return [one.base_name for one in files.get_file_info(selected) if one.type == fs.FileType.File]


def _is_local(files: Any) -> bool:
    return bool(files.type_name == "local")


def _to_disk(path: str) -> None:
    """Sync to disk: what the database records as done must survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
