"""Where the rows of a pipeline go. These are only declarations, so Spark need not be installed.

>>> Table("revenue", mode="merge", keys=["day"], add=["total"])
Table(name='revenue', mode='merge', keys=('day',), add=('total',), version=None)
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.core.event import check_name
from penstock.core.job import check_not_jobs
from penstock.declare.pipeline import Sink
from penstock.declare.subscription import Function
from penstock.errors import InvalidPipeline

__all__ = ["ForeachBatch", "Parquet", "Sink", "Stream", "Table"]

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?\Z")
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class Table(Sink):
    """An existing table of yours in the log's database; columns are matched by name.

    Exactly once: rows are written in the transaction that settles their events. `keys` need a unique index.

    - `mode="append"`: every row is inserted.
    - `mode="upsert"`: a row replaces the one with the same keys; with `version`, only if its version is higher, so that
      batches may finish in any order.
    - `mode="merge"`: the columns `add` are added to those of the row with the same keys, and the others replace its
      columns. For totals: a batch has only its own part of them. Batches run one at a time if there are others.
    """

    name: str
    mode: str = "append"
    keys: Sequence[str] = ()
    add: Sequence[str] = ()
    version: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _TABLE.match(self.name):
            raise InvalidPipeline(f"{self.name!r} is not a table name: use letters, digits and _, or schema.table.")
        if self.mode not in ("append", "upsert", "merge"):
            raise InvalidPipeline(f'mode is "append", "upsert" or "merge", not {self.mode!r}.')
        object.__setattr__(self, "keys", _names("keys", self.keys))
        object.__setattr__(self, "add", _names("add", self.add))
        if (self.mode != "append") != bool(self.keys):
            raise InvalidPipeline('mode="upsert" and mode="merge" need keys=[…], and "append" takes none.')
        if (self.mode == "merge") != bool(self.add):
            raise InvalidPipeline('mode="merge" needs add=[…], the columns to add up, and only merge does.')
        if self.version is not None and self.mode != "upsert":
            raise InvalidPipeline('Only mode="upsert" takes a version.')
        if self.version is not None and (not isinstance(self.version, str) or not self.version):
            raise InvalidPipeline("version is the name of a column.")
        if {*self.keys} & {*self.add, self.version}:
            raise InvalidPipeline("A key can neither be added up nor be the version.")

    def one_at_a_time(self, columns: Iterable[str] = ()) -> bool:
        """Columns that are replaced without a version keep what was written last."""
        if self.mode == "merge":
            return not {*columns} <= {*self.keys, *self.add}
        return self.mode == "upsert" and self.version is None

    @property
    def output_modes(self) -> tuple[str, ...]:
        """A row that comes again must replace the old one, so only an upsert takes more than new rows."""
        return ("append", "update", "complete") if self.mode == "upsert" else ("append",)


def _names(what: str, given: object) -> tuple[str, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one for one in given):
        raise InvalidPipeline(f"{what} is a list of column names.")
    if len({*given}) < len(given):
        raise InvalidPipeline(f"{what} names a column twice.")
    return tuple(given)


@dataclass(frozen=True, slots=True)
class Stream(Sink):
    """Another stream of the same log. Exactly once: rows are appended in the transaction that settles their events.

    Columns `payload`, `type` (or `event_type`), `ordering_key`, `partition_key`, `headers`, `metadata`, `event_id`,
    `available_at` and `content_type` are the event's fields. Without `payload`, the other columns become one JSON
    object. `type` is the default type; `key` names the column that holds the ordering key.
    """

    name: str
    type: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        check_not_jobs(check_name(self.name, "stream"))
        if self.type is not None:
            check_name(self.type, "type")
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise InvalidPipeline("key is a column name.")

    @property
    def output_modes(self) -> tuple[str, ...]:
        """With "update" every change of a row is an event; "complete" would append the whole result every time."""
        return ("append", "update")


@dataclass(frozen=True, slots=True)
class Parquet(Sink):
    """Parquet files in a directory, under s3://bucket/prefix, or where Spark's Hadoop can write (hdfs://, s3a://, …).

    Exactly once: files have hidden names until their events are settled. A local directory is refused if tasks run on
    other machines, unless `shared=True` says that all of them have mounted it at the same path.
    """

    path: str
    compression: str = "zstd"
    shared: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidPipeline("Parquet takes a directory, or a URL like s3://bucket/prefix.")
        if _has_credentials(self.path):
            raise InvalidPipeline("Do not put credentials in the path: use the environment (AWS_ACCESS_KEY_ID, …).")
        if self.compression not in _COMPRESSIONS:
            raise InvalidPipeline(f"compression is one of {', '.join(_COMPRESSIONS)}, not {self.compression!r}.")
        if self.shared and not self.is_local:
            raise InvalidPipeline("shared=True is for directories that all machines have mounted, not for URLs.")

    @property
    def is_local(self) -> bool:
        """Whether the path is a directory of the machine that writes."""
        return "://" not in self.path or self.path.startswith("file://")

    @property
    def folder(self) -> str:
        """The path, absolute."""
        return self.path if "://" in self.path else os.path.abspath(self.path)

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.folder,) if self.shared else ()


@dataclass(frozen=True, slots=True)
class ForeachBatch(Sink):
    """Your function `fn(df, batch_id)`, called at least once per batch; the id identifies exactly its events.

    The id is `stream/group/low-high`: the range of offsets, low excluded. After a crash the same events may come in
    smaller batches within that range.
    """

    function: Function

    def __post_init__(self) -> None:
        if not callable(self.function) or inspect.iscoroutinefunction(self.function):
            raise InvalidPipeline("ForeachBatch takes a plain (not async) function of a DataFrame and a batch id.")
        try:
            inspect.signature(self.function).bind(object(), "id")
        except TypeError as error:
            raise InvalidPipeline(f"ForeachBatch calls fn(df, batch_id): {error}.") from error

    def one_at_a_time(self, columns: Iterable[str] = ()) -> bool:
        """Your function need not be thread-safe."""
        return True


def _has_credentials(path: str) -> bool:
    """Whether a URL names a user; abfs://container@account does not."""
    found = urlsplit(path)
    return found.password is not None or (found.username is not None and found.scheme not in ("abfs", "abfss", "wasbs"))
