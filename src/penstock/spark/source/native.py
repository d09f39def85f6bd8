"""Events of the log and of archived files in one DataFrame, the files read by Spark itself."""

from __future__ import annotations

from typing import Any

from penstock.core.event import check_name
from penstock.log.archives import record
from penstock.log.archives.files import PlacedFile
from penstock.log.archives.places import is_local
from penstock.log.transact import Transaction, look
from penstock.spark import secrets
from penstock.spark.arrow import EVENTS_DDL
from penstock.spark.logs import log_at


def events(spark: Any, url: str, stream: str) -> Any:
    """Return the events of a stream: those that are archived from the files, as far as the stream was pruned."""
    check_name(stream, "stream")
    safe = secrets.hide(spark, url)
    upto, files = look(log_at(safe).store, lambda tx: _archived(tx, stream))
    source = spark.read.format("penstock").options(url=safe, stream=stream)
    if not files or not all(is_local(one.place) for one in files):
        return source.load()
    paths = [f"{one.place}/{one.file.path}" for one in files]
    archived = spark.read.schema(EVENTS_DDL).parquet(*paths).where(f"offset <= {upto}")
    if len({one.place for one in files}) > 1:  # copies of the same events
        archived = archived.dropDuplicates(["offset"])
    return archived.unionByName(source.option("after", upto).load())


def _archived(tx: Transaction, stream: str) -> tuple[int, list[PlacedFile]]:
    """Return up to where files are read, and which. An archive has every event up to its end, pruned or not."""
    pruned, last = tx.one("rewind.pruned", stream=stream), tx.one("archive.reach", stream=stream)
    if pruned is None or last is None or last.upto is None:
        return 0, []
    upto = min(int(pruned.upto), int(last.upto))
    return upto, record.files_of(tx, stream, 0, upto)
