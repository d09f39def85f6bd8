"""Archives written without Spark, as `penstock.archive` lists them: for tests that need only their files."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

import penstock
from penstock.core.batch import Event
from penstock.log.archives import record
from penstock.log.archives.files import describe
from penstock.log.archives.places import Place
from penstock.log.archives.record import MANIFEST, Archive


def archive(log: penstock.Log, stream: str, place: Path | str, upto: int | None = None, per_file: int = 7) -> None:
    """Archive a stream up to an offset, or the horizon, in small files."""
    one = record.begin(log.store, stream, str(place), before=None, upto=upto, by="test")
    if one is not None:
        complete(log, one, per_file)


def complete(log: penstock.Log, one: Archive, per_file: int = 7) -> None:
    """Write the files of an archive that was begun."""
    events = [event for event in log.read(one.stream, after=one.low, limit=1_000_000) if event.offset <= one.high]
    target, folder = Place(one.place), f"{one.stream}/offsets-{one.low + 1}-{one.high}-{one.id}"
    target.make(folder)
    files = []
    for start in range(0, len(events), per_file):
        path = f"{folder}/part-{uuid.uuid4().hex}.parquet"
        _write(target, path, events[start : start + per_file])
        file = describe(target, path)
        assert file is not None
        files.append(file)
    target.write(f"{folder}/{MANIFEST}", record.manifest(one, files))
    record.finish(log.store, one, folder, files)


def _write(target: Place, path: str, events: Sequence[Event]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from penstock.spark.arrow import events_schema

    rows: list[dict[str, Any]] = [
        {
            "offset": one.offset,
            "event_id": str(one.event_id),
            "event_type": one.event_type,
            "payload": one.payload,
            "content_type": one.content_type,
            "headers": list(one.headers.items()) or None,
            "metadata": None if not one.metadata else orjson.dumps(one.metadata).decode(),
            "partition_key": one.partition_key,
            "ordering_key": one.ordering_key,
            "available_at": one.available_at,
            "created_at": one.created_at,
            "stream": one.stream,
        }
        for one in events
    ]
    with target.files.open_output_stream(target.path(path)) as sink:
        parquet.write_table(pa.Table.from_pylist(rows, events_schema()), sink, compression="zstd")
