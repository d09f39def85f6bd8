"""`JobType`: the function that does the jobs of a type, and how to run it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from inspect import iscoroutinefunction, signature
from typing import Any

from penstock.core import limits
from penstock.core.cron import first_after
from penstock.core.group import check_max_in_flight, check_rate
from penstock.core.job import (
    GROUP,
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    PRIORITIES,
    QUEUE,
    JobName,
    check_job_name,
    check_keep_dead,
    check_keep_finished,
)
from penstock.core.retry import Retry
from penstock.declare.around import Around, PortableAround, portable_around
from penstock.declare.load import Reference, reference_to
from penstock.declare.retry_classes import RetryClasses, classes_of
from penstock.declare.subscription import Function, check_whole, handler_of, one_of, positive
from penstock.errors import InvalidHandler, InvalidInput, UnknownJob


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """How the jobs of a type are run."""

    retry: Retry = field(default_factory=Retry)
    lease_seconds: float = LEASE_SECONDS
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    timeout_seconds: float | None = None  # None: as long as it takes
    concurrency: int = 1
    memory_mb: int = limits.MEMORY_MB
    max_in_flight: int | None = None
    rate_per_second: float | None = None
    keep_finished: float | timedelta | str | None = None  # seconds; None: for ever
    keep_dead: float | timedelta | str | None = None
    on_invalid: str = "dead"  # or "complete"
    on_error: str = "retry"  # or "expire": the failure is not reported, and the lease runs out

    def __post_init__(self) -> None:
        if not isinstance(self.retry, Retry):
            raise InvalidInput(f"retry takes a penstock.Retry, not {self.retry!r}.")
        positive("lease_seconds", self.lease_seconds, limits.LEASE_SECONDS_MOST)
        positive("heartbeat_seconds", self.heartbeat_seconds, limits.LEASE_SECONDS_MOST)
        if self.heartbeat_seconds >= self.lease_seconds:
            raise InvalidInput(
                f"heartbeat_seconds ({self.heartbeat_seconds:g}) must be less than lease_seconds "
                f"({self.lease_seconds:g}): every job would be lost before its first heartbeat."
            )
        if self.timeout_seconds is not None:
            positive("timeout_seconds", self.timeout_seconds, limits.LEASE_SECONDS_MOST)
        check_whole("concurrency", self.concurrency, limits.CONCURRENCY)
        check_whole("memory_mb", self.memory_mb, 2**31)
        check_max_in_flight(self.max_in_flight)
        check_rate(self.rate_per_second)
        check_keep_finished(self.keep_finished)
        check_keep_dead(self.keep_dead)
        one_of("on_invalid", self.on_invalid, ("dead", "complete"))
        one_of("on_error", self.on_error, ("retry", "expire"))


@dataclass(frozen=True, slots=True)
class JobStream:
    """The group of one stream of jobs."""

    stream: str
    group: str = GROUP

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.group}"


@dataclass(frozen=True, slots=True)
class JobType:
    """A type of jobs in a queue."""

    type: str
    queue: str
    function: Function
    policy: JobPolicy
    schema: Any = None  # a pydantic model
    wants_context: bool = False
    is_async: bool = False
    takes_payload: bool = True  # a schedule's function does not
    around: Around = field(default_factory=Around, compare=False, repr=False)

    @property
    def name(self) -> str:
        """What it is called in logs and counts."""
        return f"jobs:{self.queue}:{self.type}"

    @property
    def stream(self) -> str:
        """Its streams, without their priority."""
        return self.name

    @property
    def group(self) -> str:
        return GROUP

    @property
    def streams(self) -> list[str]:
        """Where its jobs are, the most urgent first."""
        return [JobName(self.queue, priority, self.type).stream for priority in reversed(PRIORITIES)]

    @property
    def one_by_one(self) -> bool:
        """Whether its jobs run one after the other, in the main thread of their process."""
        return not self.is_async and self.policy.concurrency == 1

    @property
    def served(self) -> list[JobStream]:
        """The groups that its worker works for."""
        return [JobStream(stream) for stream in self.streams]


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A function that is called by the clock."""

    name: str
    cron: str
    tz: str
    job: JobType


def scheduled_job_of(app: str, function: Function, cron: str, tz: str, policy: JobPolicy) -> ScheduledJob:
    """Check the declaration of a schedule; the function takes a context, or nothing."""
    first_after(cron, tz, datetime.now(UTC))
    name = f"{app}.{getattr(function, '__name__', 'schedule')}"
    check_job_name(name, QUEUE, 0)
    positional = [
        one
        for one in signature(function).parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) > 1:
        raise InvalidHandler(f"{name}{signature(function)} must take a context, or nothing.")
    job = JobType(
        name, QUEUE, function, policy, None, bool(positional), iscoroutinefunction(function), takes_payload=False
    )
    return ScheduledJob(name, cron, tz, job)


def job_type_of(job_type: str, queue: str, function: Function, schema: Any, policy: JobPolicy) -> JobType:
    """Check a declaration; the function takes the payload, or the payload and a context."""
    check_job_name(job_type, queue, 0)
    if schema is not None and not hasattr(schema, "model_validate_json"):
        raise InvalidInput(f"schema takes a pydantic model, not {schema!r}.")
    handler = handler_of(function, None)
    return JobType(job_type, queue, function, policy, schema, handler.wants_context, handler.is_async)


@dataclass(frozen=True, slots=True)
class PortableJob:
    """Everything another process needs to do jobs of a type."""

    type: str
    queue: str
    policy: JobPolicy
    function: Reference
    schema: Reference | None
    wants_context: bool
    is_async: bool
    takes_payload: bool
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    retry_classes: RetryClasses = field(default_factory=RetryClasses)  # `policy` has none
    around: PortableAround = field(default_factory=PortableAround)

    def load(self) -> JobType:
        """Load the function in this process."""
        schema = None if self.schema is None else self.schema.resolve()
        function = self.function.resolve()
        return JobType(
            self.type,
            self.queue,
            function,
            replace(self.policy, retry=self.retry_classes.load(self.policy.retry)),
            schema,
            self.wants_context,
            self.is_async,
            self.takes_payload,
            self.around.load(),
        )


def portable_job(job: JobType) -> PortableJob:
    """Pack a type; `HandlerUnreachable` if another process could not find its function."""
    return PortableJob(
        job.type,
        job.queue,
        replace(job.policy, retry=job.policy.retry.without_classes()),
        reference_to(job.function),
        None if job.schema is None else reference_to(job.schema),
        job.wants_context,
        job.is_async,
        job.takes_payload,
        tuple(sys.path),
        tuple(sys.argv),
        classes_of(job.policy.retry),
        portable_around(job.around),
    )


def choose(jobs: Sequence[JobType], types: Sequence[str] | None, concurrency: int | None, app: str) -> list[JobType]:
    """Return the jobs of these types (default: all), perhaps with another concurrency."""
    known = {one.type for one in jobs}
    for one in types or ():
        if one not in known:
            names = ", ".join(sorted(known)) or "none"
            raise UnknownJob(f"The app {app!r} has no job type {one!r}; it has {names}.")
    found = [one for one in jobs if not types or one.type in types]
    if concurrency is None:
        return found
    return [replace(one, policy=replace(one.policy, concurrency=concurrency)) for one in found]


def scheduled(schedules: Sequence[ScheduledJob], jobs: Sequence[JobType]) -> list[ScheduledJob]:
    """Return the schedules of these jobs."""
    types = {one.type for one in jobs}
    return [one for one in schedules if one.job.type in types]
