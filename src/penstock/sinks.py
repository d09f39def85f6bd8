"""Where the rows of a pipeline go. These are only declarations, so Spark need not be installed.

>>> Table("revenue", mode="upsert", keys=["day"])
Table(name='revenue', mode='upsert', keys=('day',))
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.core.event import check_name
from penstock.declare.pipeline import Sink
from penstock.declare.subscription import Function
from penstock.errors import InvalidPipeline

__all__ = ["ForeachBatch", "Parquet", "Sink", "Stream", "Table"]

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?\Z")
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")


@dataclass(frozen=True, slots=True)
class Table(Sink):
    """An existing table of yours in the log's database; columns are matched by name.

    Exactly once: rows are written in the transaction that settles their events. With `mode="upsert"` a row replaces the
    one with the same `keys`; the table needs a unique index on them.
    """

    name: str
    mode: str = "append"
    keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _TABLE.match(self.name):
            raise InvalidPipeline(f"{self.name!r} is not a table name: use letters, digits and _, or schema.table.")
        if self.mode not in ("append", "upsert"):
            raise InvalidPipeline(f'mode is "append" or "upsert", not {self.mode!r}.')
        if isinstance(self.keys, str) or not all(isinstance(key, str) and key for key in self.keys):
            raise InvalidPipeline("keys is a list of column names.")
        if (self.mode == "upsert") != bool(self.keys):
            raise InvalidPipeline('mode="upsert" needs keys=[…], and only upsert does.')
        object.__setattr__(self, "keys", tuple(self.keys))


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
        check_name(self.name, "stream")
        if self.type is not None:
            check_name(self.type, "type")
        if self.key is not None and (not isinstance(self.key, str) or not self.key):
            raise InvalidPipeline("key is a column name.")


@dataclass(frozen=True, slots=True)
class Parquet(Sink):
    """Parquet files in a local directory, or under s3://bucket/prefix.

    Exactly once: files have hidden names until their events are settled.
    """

    path: str
    compression: str = "zstd"

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidPipeline("Parquet takes a directory, or s3://bucket/prefix.")
        if "://" in self.path and urlsplit(self.path).username is not None:
            raise InvalidPipeline("Do not put credentials in the path: use the environment (AWS_ACCESS_KEY_ID, …).")
        if self.compression not in _COMPRESSIONS:
            raise InvalidPipeline(f"compression is one of {', '.join(_COMPRESSIONS)}, not {self.compression!r}.")


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
