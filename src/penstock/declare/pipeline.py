"""`Pipeline`: a function from DataFrame to DataFrame, its group, and its sink."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from penstock.core import limits
from penstock.core.binding import check_patterns
from penstock.core.event import check_name
from penstock.core.group import Group
from penstock.core.retry import Retry
from penstock.declare.subscription import Function
from penstock.errors import InvalidInput, InvalidPipeline
from penstock.log.log import Log


class Sink:
    """Where the rows of a pipeline go; see `penstock.sinks`."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that tasks write to by themselves, on whatever machine they run."""
        return ()

    @property
    def output_modes(self) -> tuple[str, ...]:
        """Output modes of a streaming query whose rows it takes exactly once; none if it takes no queries."""
        return ()

    def one_at_a_time(self, columns: Iterable[str] = ()) -> bool:
        """Whether a batch may be written only after the one before it, if its rows have these columns."""
        return False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A function that Spark runs for every batch of a group."""

    stream: str
    group: str
    function: Function
    sink: Sink
    types: tuple[str, ...] | None = None
    start: str | int | datetime = "beginning"
    retry: Retry = field(default_factory=Retry)
    lease_seconds: float = limits.LEASE_SECONDS
    headers: Mapping[str, str] | None = None
    batch_size: int = limits.PIPELINE_BATCH
    in_flight: int | None = None  # batches that run side by side; None: as many as the sink allows, two at most
    linger_seconds: float = 0.0
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        check_name(self.stream, "stream")
        check_name(self.group, "group")
        check_patterns(self.types)
        check_function(self.function)
        if not isinstance(self.sink, Sink):
            raise InvalidPipeline(f"sink takes one of penstock.sinks (Table, Stream, …), not {self.sink!r}.")
        if not isinstance(self.retry, Retry):
            raise InvalidInput(f"retry takes a penstock.Retry, not {self.retry!r}.")
        self.retry.storable()
        seconds = self.lease_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _MOST_SECONDS:
            raise InvalidInput(f"lease_seconds must be a positive number of at most {_MOST_SECONDS:,g}.")
        size = self.batch_size
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= limits.PIPELINE_BATCH:
            raise InvalidInput(f"batch_size must be a whole number between 1 and {limits.PIPELINE_BATCH:,}.")
        self._check_flight()

    def _check_flight(self) -> None:
        many, linger, timeout = self.in_flight, self.linger_seconds, self.timeout_seconds
        if many is not None and (
            isinstance(many, bool) or not isinstance(many, int) or not 1 <= many <= limits.IN_FLIGHT
        ):
            raise InvalidInput(f"in_flight must be a whole number between 1 and {limits.IN_FLIGHT}.")
        self.batches_in_flight()
        if isinstance(linger, bool) or not isinstance(linger, int | float) or not 0 <= linger <= limits.LINGER_SECONDS:
            raise InvalidInput(f"linger_seconds must be a number between 0 and {limits.LINGER_SECONDS:,g}.")
        if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or timeout <= 0):
            raise InvalidInput("timeout_seconds must be a positive number, or None for no limit.")

    def batches_in_flight(self, columns: Iterable[str] = ()) -> int:
        """How many batches with these columns run side by side; `InvalidPipeline` if the sink cannot take as many."""
        if not self.sink.one_at_a_time(columns):
            return self.in_flight or limits.PIPELINES_IN_FLIGHT
        if self.in_flight is not None and self.in_flight > 1:
            raise InvalidPipeline(f"{self.sink!r} takes one batch at a time: leave in_flight out.")
        return 1

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.group}"


_MOST_SECONDS = limits.LEASE_SECONDS_MOST


def check_function(function: Any) -> None:
    """Check that this is a plain function of one DataFrame; `InvalidPipeline` otherwise."""
    name = getattr(function, "__qualname__", repr(function))
    if not callable(function):
        raise InvalidPipeline(f"{name} is not a function.")
    if inspect.iscoroutinefunction(function):
        raise InvalidPipeline(f"{name} is async: Spark would not wait for it. Write a plain function.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidPipeline(f"{name} is a generator: return one DataFrame instead of yielding.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(f"{name} has no readable signature: {error}.") from error
    try:
        signature.bind(object())
    except TypeError as error:
        raise InvalidPipeline(f"{name}{signature} must take one DataFrame: {error}.") from error


class OnSpark(Protocol):
    """What only Spark can run."""

    @property
    def group(self) -> str: ...


def check_local(declared: Sequence[OnSpark]) -> None:
    """Refuse pipelines and queries on the local engine, which has no DataFrames."""
    if declared:
        names = ", ".join(one.group for one in declared)
        raise InvalidInput(f"Pipelines and queries need the Spark engine: {names}. Use it, or choose other groups.")


def declare_pipeline(log: Log, pipeline: Pipeline, by: str) -> Group:
    """Create the group or update its policy; a different binding raises."""
    return log.declare_group(
        pipeline.stream,
        pipeline.group,
        start=pipeline.start,
        retry=pipeline.retry,
        lease_seconds=pipeline.lease_seconds,
        types=pipeline.types,
        headers=pipeline.headers,
        by=by,
    )
