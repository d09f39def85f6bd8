"""Archive a stream: Spark reads its events and writes Parquet files, which count once the log lists them.

A folder is written under a hidden name with a manifest in it; on disk it then gets its name by one rename, in object
storage, where that would be a copy, it keeps the hidden one. At last one transaction lists its files. Whoever was
killed leaves a record of what was begun, and the next call completes it: files that no manifest names are dropped.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from penstock.errors import InvalidInput, PenstockError
from penstock.log.archives import record
from penstock.log.archives.attempts import drop_attempts, parent_of
from penstock.log.archives.erase import sweep
from penstock.log.archives.files import ArchiveFile, describe
from penstock.log.archives.places import Place, check_place, is_local
from penstock.log.archives.record import MANIFEST, Archive
from penstock.log.log import Log
from penstock.spark import register, secrets
from penstock.spark.session import is_local as is_local_master

COMPRESSION: Final = "zstd"
_TIMES: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.sql.session.timeZone": "UTC"}
_QUIET: Final = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@dataclass(frozen=True, slots=True)
class Archived:
    """The result of `archive`."""

    stream: str
    place: str
    archives: tuple[Archive, ...]  # that were written now
    upto: int  # the stream is archived up to here
    pruned: int  # events that were removed

    @property
    def events(self) -> int:
        """How many events were archived now."""
        return sum(one.events for one in self.archives)


def archive(
    log: Log,
    stream: str,
    place: str,
    *,
    spark: Any,
    before: datetime | None = None,
    upto: int | None = None,
    prune: bool = False,
    shared: bool = False,
    by: str | None = None,
) -> Archived:
    """Copy what a stream has and the archive in this place has not: up to an offset, a time, or the horizon.

    With `prune`, what every group has finished of it is then removed. `shared` says that all machines have mounted a
    directory at the same path.
    """
    where = check_place(place)
    if is_local(where) and not shared and not is_local_master(spark.sparkContext.master):
        raise InvalidInput(
            f"{where} is a path on the machine of each task, and {spark.sparkContext.master} has tasks elsewhere. "
            "Archive to shared storage, or say that it is shared if every machine has mounted it at this path."
        )
    sweep(log.store)
    target = Place(where)
    made: list[Archive] = []
    drop_attempts(log.store, target, stream)
    while (one := record.begin(log.store, stream, where, before=before, upto=upto, by=by)) is not None:
        made.append(_complete(log, spark, target, one))
    done = [one for one in log.archives(stream) if one.place == where and one.done]
    reached = max((one.high for one in done), default=0)
    removed = log.prune(stream, upto=reached, by=by).count if prune and reached else 0
    return Archived(stream, where, tuple(made), reached, removed)


def _complete(log: Log, spark: Any, place: Place, one: Archive) -> Archive:
    """Write one archive, or what is missing of it."""
    parent = parent_of(one.stream)
    name = f"offsets-{one.low + 1}-{one.high}-{one.id}"
    place.make(parent)
    found = _finished(place, parent, name)
    if found is None:
        hidden = f"{parent}/_{name}-{uuid.uuid4().hex[:8]}"
        files = list(_write(log, spark, place, one, hidden))
        place.write(
            f"{hidden}/{MANIFEST}", record.manifest(one, _below(files, hidden, _named(place, parent, name, hidden)))
        )
        found = _give_name(place, parent, name, hidden)
    done = record.finish(log.store, one, found, record.read_manifest(place, found))
    drop_attempts(log.store, place, one.stream)
    return done


def _named(place: Place, parent: str, name: str, hidden: str) -> str:
    """Return the folder in which the files will be found."""
    return f"{parent}/{name}" if place.on_disk else hidden


def _finished(place: Place, parent: str, name: str) -> str | None:
    """Return the folder of an archive that was written completely by somebody who then died."""
    if place.on_disk and place.exists(f"{parent}/{name}/{MANIFEST}"):
        return f"{parent}/{name}"
    for hidden in _hidden(place, parent, name):
        if place.exists(f"{hidden}/{MANIFEST}"):
            return _give_name(place, parent, name, hidden)
    return None


def _give_name(place: Place, parent: str, name: str, hidden: str) -> str:
    """Give a complete folder its name; if another process was quicker, its folder counts."""
    if place.on_disk:
        place.sync(hidden)
        place.rename(hidden, f"{parent}/{name}")
    return _named(place, parent, name, hidden)


def _hidden(place: Place, parent: str, name: str) -> list[str]:
    pattern = re.compile(rf"_{re.escape(name)}-[0-9a-f]{{8}}\Z")
    return [f"{parent}/{one}" for one in place.folders(parent) if pattern.match(one)]


def _below(files: list[ArchiveFile], hidden: str, folder: str) -> list[ArchiveFile]:
    """Return the files with their paths in the folder that they will be found in."""
    return [replace(file, path=f"{folder}{file.path.removeprefix(hidden)}") for file in files]


# --- what Spark does --------------------------------------------------------------------------------------------------


def _write(log: Log, spark: Any, place: Place, one: Archive, hidden: str) -> Iterator[ArchiveFile]:
    """Let Spark write the events of an archive into a hidden folder; yields its files, as their footers tell."""
    session = spark.newSession()  # settings of our own
    for key, value in _TIMES.items():
        session.conf.set(key, value)
    register(session)
    options = {"stream": one.stream, "after": one.low, "upto": one.high, "archive": "no"}
    url = secrets.hide(spark, log.store.url)
    events = session.read.format("penstock").options(url=url, **options).load()
    if place.on_disk:
        events.write.options(compression=COMPRESSION, **_QUIET).parquet(place.path(hidden))
        place.make(hidden)  # of no events Spark may make none
        paths = [path for path in place.listed(hidden) if path.endswith(".parquet")]
    else:
        place.make(hidden)
        paths = [f"{hidden}/{name}" for name in _write_with_arrow(events, place.place, hidden)]
    for path in paths:
        file = describe(place, path)
        if file is None:
            place.drop(path)
        else:
            yield file


def _write_with_arrow(events: Any, place: str, hidden: str) -> list[str]:
    """Let every task write a file with pyarrow, which knows object storage; only the names that tasks return count."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import parquet

        target, writer, name = Place(place), None, f"part-{uuid.uuid4().hex}.parquet"
        try:
            for batch in batches:
                if len(batch) == 0:
                    continue
                if writer is None:
                    path = target.path(f"{hidden}/{name}")
                    writer = parquet.ParquetWriter(path, batch.schema, filesystem=target.files, compression=COMPRESSION)
                writer.write_batch(batch)
        except OSError as error:
            raise PenstockError(f"{place} cannot be written: {error}.") from error
        finally:
            if writer is not None:
                writer.close()
        yield pa.RecordBatch.from_pydict({"name": pa.array([] if writer is None else [name], pa.string())})

    return [row["name"] for row in events.mapInArrow(task, "name string").collect()]
