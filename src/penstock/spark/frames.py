"""The events of a lease as a DataFrame whose tasks read them: nothing of them passes the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.core.lease import LeaseRow
from penstock.spark.logs import log_at
from penstock.spark.reading import EVENTS_DDL, read_claimed

CLAIMED_DDL = f"{EVENTS_DDL}, attempts int"


def frame(spark: Any, safe_url: str, pieces: Sequence[LeaseRow]) -> Any:
    """A DataFrame with one partition for each of these pieces of a lease.

    A lease contains the same for ever, so that a task that Spark runs again reads the same.
    """
    listed = list(pieces)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from read_claimed(log_at(safe_url), listed[place])

    return spark.range(0, len(listed), 1, len(listed)).mapInArrow(read, CLAIMED_DDL)


def empty_frame(spark: Any) -> Any:
    """The same without any events, to see what a function makes of it."""
    return spark.createDataFrame([], CLAIMED_DDL)
