"""`readStream`: a group of the log as a streaming query, one numbered claim per micro-batch.

The offset is `{"claim": n, "reader": id}`. A claim is settled when Spark asks for the next one: then it has committed
the batch. Everything else (the leases of a claim, the open claims) is in the database, so a query that dies finds its
batch unchanged.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.core.lease import Idle, LeaseRow
from penstock.core.limits import READER_WAIT_SECONDS
from penstock.engine.idle import IdlePoll
from penstock.errors import AWAY, ClaimLost, OrderedGroup, UnknownGroup, UnknownReader
from penstock.log import queries
from penstock.log.log import Log
from penstock.log.reader_claims import ReaderClaims
from penstock.spark import arrow, machine
from penstock.spark.logs import log_at
from penstock.spark.source import stream_options
from penstock.spark.source.batch import check_schema

logger = logging.getLogger("penstock")
_ALL = 2**31  # events in a micro-batch without a limit
_FEWEST = 1_000  # least events per partition: fewer are not worth a task
_SIZE = 25_000  # events per partition, unless the user says how many there are to be
_AT_ONCE = 2_000  # events that one statement reads: it ends before Spark gets them, however slow that is


@dataclass(slots=True)
class StreamPartition(InputPartition):
    """What one task reads: leases of a claim, or parts of them."""

    pieces: tuple[LeaseRow, ...]


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming reader of a group. One instance plans on the driver, others read in the tasks."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self._options = stream_options.parse(options)
        check_schema("events", schema)
        self._columns: list[str] = schema.names
        self._driver = machine.here()
        machine.check_driver(self._options.url)
        self._first: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None  # the last offset that Spark was given, or has committed
        self._upto: int | None = None  # with Trigger.AvailableNow: the horizon when the query began
        self._handed: set[tuple[str, int]] = set()  # claims that this process gave to Spark

    # --- on the driver -------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return a new reader's offset, for a query without a checkpoint."""
        if self._first is None:
            self._begin()
            self._warn_of_others()
            self._first = _offset(uuid.uuid4().hex[:16], 0)
        return self._first

    def getDefaultReadLimit(self) -> ReadLimit:
        """Limit the size of a micro-batch."""
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the current horizon, then end."""
        self._begin()
        self._upto = self._claims().horizon()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Settle up to `start`, which Spark has committed, then return the next claim, if there is one."""
        self._last = start
        reader, done = _read_offset(start)
        claims = self._claims()
        self._check_lost(reader, claims.settle_upto(reader, done))
        waiting = IdlePoll(self._log(), threading.Event())
        deadline = time.monotonic() + READER_WAIT_SECONDS
        while True:
            wanted = self._wanted()
            found: int | Idle = Idle(None)
            if wanted == "run":
                found = claims.next(reader, after=done, limit=self._rows(limit), upto=self._upto)
            if isinstance(found, int):
                self._handed.add((reader, found))
                self._last = _offset(reader, found)
                return self._last
            left = deadline - time.monotonic()
            if self._upto is not None or left <= 0 or wanted == "stop":
                return start
            waiting.wait(replace(found, seconds=left if found.seconds is None else min(left, found.seconds)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how far the group is behind, for Spark's progress: `lag` is the number of unfinished events."""
        if self._last is None:
            return None
        try:
            (group,) = self._log().stats(self._options.stream, self._options.group).groups
        except (ValueError, UnknownGroup, *AWAY):  # whoever needs the group reports that
            return None
        return {**self._last, "lag": group.lag}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Cut the claim `end` into partitions. Spark has logged its number by now, so hold it for days."""
        reader, number = _read_offset(end)
        if start == end or number == 0:  # a first batch without data has a reader, but no claim yet
            return []
        leases = self._claims().hold(reader, number, skip_lost=self._options.skip_lost)
        self._handed.add((reader, number))
        return [StreamPartition(pieces) for pieces in _packed(leases, self._options.partitions)]

    def _wanted(self) -> str:
        """Return what the run that this reader belongs to should do: run, quiet (claim nothing new) or stop."""
        if self._options.run is None:
            return "run"
        return self._log().wanted_of_run(self._options.run) or "run"

    def _warn_of_others(self) -> None:
        """Say that a new checkpoint reads on where another one has stopped."""
        stream, group = self._options.stream, self._options.group
        others = queries.readers(self._log().store, stream, group)
        if others and self._options.run is None:  # `@app.query` says so itself
            logger.warning(
                "%s/%s: this query has a new checkpoint, but reader %s has read the group before: what it settled does "
                "not come again. A file sink whose folder has the `_spark_metadata` of an older checkpoint drops the "
                "first batches: use a new folder.",
                *(stream, group, others[0]),
            )

    def _begin(self) -> None:
        """Create the group if it is missing; `OrderedGroup` if it is ordered."""
        options = self._options
        log = self._log()
        known = [one for one in log.groups(options.stream) if one.group_name == options.group]
        group = known[0] if known else log.create_group(options.stream, options.group, start=options.start)
        if group.ordered:
            raise OrderedGroup(f"The group {options.group!r} on {options.stream!r} is ordered by key.")

    def _check_lost(self, reader: str, lost: list[int]) -> None:
        """Raise once if a committed batch will be read again; a restarted query continues with it."""
        mine = sorted(number for number in lost if (reader, number) in self._handed)
        if mine and not self._options.skip_lost:
            raise ClaimLost(f"Claim {mine[0]} of reader:{reader} was lost before it could be settled; it comes again.")

    def _rows(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadAllAvailable):
            return _ALL
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows

    # --- in the tasks --------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the events of a partition as Arrow; `ClaimLost` if this reader no longer holds them."""
        if not isinstance(partition, StreamPartition):  # Spark's placeholder for no partitions
            return
        machine.check_here(self._options.url, self._driver)
        log = self._log()
        self._claims().check_held({piece.id: piece.token for piece in partition.pieces})
        for piece in partition.pieces:
            count = 0
            for part in arrow.parts(piece, -(-piece.members // _AT_ONCE)):
                batches = list(arrow.read_claimed(log, part, self._columns))
                count += sum(map(len, batches))
                yield from batches
            if piece.offsets is not None and count != len(piece.offsets):
                raise ClaimLost(f"Rows of lease {piece.id} were removed while they were read.")

    # --- both ----------------------------------------------------------------------------------------------------

    def _log(self) -> Log:
        return log_at(self._options.url)

    def _claims(self) -> ReaderClaims:
        return ReaderClaims(self._log().store, self._options.stream, self._options.group, self._options.run)


def _offset(reader: str, claim: int) -> dict[str, Any]:
    """Make an offset. Spark compares offsets as text, so the keys must keep this order."""
    return {"claim": claim, "reader": reader}


def _read_offset(offset: dict[str, Any]) -> tuple[str, int]:
    try:
        return str(offset["reader"]), int(offset["claim"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownReader(f"The checkpoint was not written by this data source: {offset}.") from error


def _packed(leases: Sequence[LeaseRow], most: int | None) -> list[tuple[LeaseRow, ...]]:
    """Pack leases into about equal shares, at most so many if that is said: cut large ones, combine small ones."""
    size = _SIZE if most is None else max(_FEWEST, -(-sum(lease.members for lease in leases) // most))
    pieces = [piece for lease in leases for piece in arrow.parts(lease, -(-lease.members // size))]
    packed: list[list[LeaseRow]] = []
    filled = size
    for piece in pieces:
        if filled + piece.members > size:
            packed.append([])
            filled = 0
        packed[-1].append(piece)
        filled += piece.members
    return [tuple(share) for share in packed]
