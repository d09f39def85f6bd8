"""A job: an event meant for one worker. Its stream says its queue, its priority and its type."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from penstock.core import limits
from penstock.core.delivery import State
from penstock.core.event import NAME, check_name
from penstock.core.retry import Retry
from penstock.errors import InvalidInput, InvalidName, ReservedStream

PREFIX: Final = "jobs:"
GROUP: Final = "workers"  # the one group of every stream of jobs
QUEUE: Final = "default"
PRIORITIES: Final = range(10)  # 9 first
SETTINGS: Final = "penstock-job"  # the key in an event's metadata that holds the settings of one job
LEASE_SECONDS: Final = 30.0
HEARTBEAT_SECONDS: Final = 5.0
CANCELLED: Final = "cancelled"
REPLACED: Final = "replaced"
FOREVER: Final = "forever"


class JobName(NamedTuple):
    """Which stream a job is in."""

    queue: str
    priority: int
    type: str

    @property
    def stream(self) -> str:
        return f"{PREFIX}{self.queue}:{self.priority}:{self.type}"


def check_job_name(job_type: Any, queue: Any, priority: Any) -> JobName:
    """Check type, queue and priority of a job."""
    if (type(job_type), type(queue), type(priority)) == (str, str, int):
        return _checked_name(job_type, queue, priority)
    return _checked_name.__wrapped__(job_type, queue, priority)


@lru_cache(maxsize=4_096)
def _checked_name(job_type: Any, queue: Any, priority: Any) -> JobName:
    checked = check_name(job_type, "type"), check_queue(queue), check_priority(priority)
    name = JobName(checked[1], checked[2], checked[0])
    if not NAME.match(name.stream):
        raise InvalidName(f"type and queue are too long together: {name.stream[:140]!r} is the name of a stream.")
    return name


def check_queue(queue: Any) -> str:
    """Check the name of a queue, which has no colon."""
    name = check_name(queue, "queue")
    if ":" in name:
        raise InvalidName(f"queue {name!r} contains a colon; a type may, a queue may not.")
    return name


def check_priority(priority: Any) -> int:
    """Check a priority: 0 to 9, 9 first."""
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise InvalidInput(f"priority must be a whole number from 0 to 9 (9 is first), not {str(priority)[:60]}.")
    return priority


def check_max_attempts(attempts: Any) -> int | None:
    """Check how often a job may be tried; None leaves it to its type."""
    return None if attempts is None else Retry(max_attempts=attempts).max_attempts


def check_keep_finished(keep: Any) -> float | None:
    """Return how many seconds finished jobs stay: 0 is not at all, None (or "forever") for ever."""
    return check_kept(keep, "keep_finished")


def check_keep_dead(keep: Any) -> float | None:
    """Return how many seconds dead jobs stay: more than 0, None (or "forever") for ever."""
    seconds = check_kept(keep, "keep_dead")
    if seconds == 0:
        raise InvalidInput("keep_dead must be more than 0: dead jobs would be gone before anybody sees them.")
    return seconds


def check_kept(keep: Any, what: str) -> float | None:
    """Return how many seconds something stays; None (or "forever") for ever."""
    if keep is None or keep == FOREVER:
        return None
    seconds = keep.total_seconds() if isinstance(keep, timedelta) else keep
    most = limits.KEEP_SECONDS_MOST
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= most:
        raise InvalidInput(
            f'{what} takes seconds (from 0 to {most:.0f}), a timedelta or "{FOREVER}", not {str(keep)[:60]!r}.'
        )
    return float(seconds)


@lru_cache(maxsize=4_096)
def name_of(stream: str) -> JobName | None:
    """Return what the name of a stream says of its jobs; None if it is not one of jobs.

    >>> name_of("jobs:default:3:email:send")
    JobName(queue='default', priority=3, type='email:send')
    """
    parts = stream.split(":", 3)
    if len(parts) < 4 or parts[0] != "jobs" or not (parts[1] and parts[3]) or len(parts[2]) != 1:
        return None
    return JobName(parts[1], int(parts[2]), parts[3]) if parts[2].isdecimal() else None


def check_not_jobs(stream: str) -> str:
    """Return the name of a stream; raise `ReservedStream` if it is reserved for jobs."""
    if stream.startswith(PREFIX):
        raise ReservedStream(f"The stream {stream!r} is one of jobs.")
    return stream


def settings_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that travel with a job."""
    found = metadata.get(SETTINGS)
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it was submitted, claimed or looked at. `status` is the state of its delivery."""

    id: uuid.UUID
    type: str
    queue: str
    priority: int
    payload: bytes
    status: State = State.PENDING
    attempts: int = 0
    failures: int = 0
    max_attempts: int | None = None  # None as long as nobody has declared or claimed its type
    worker: str | None = None
    claimed_at: datetime | None = None
    heartbeat_at: datetime | None = None
    available_at: datetime | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None
    progress: float | None = None
    message: str | None = None
    result: Any = None
    error: str | None = None
    error_code: str | None = None
    reason: str | None = None
    headers: Mapping[str, str] | None = None
    token: int | None = None  # of its lease, for the worker that has claimed it
    expires_at: datetime | None = None
    offset: int | None = None  # its place in the log
    duplicate: bool = False  # submit: the job existed, and nothing was stored

    @property
    def stream(self) -> str:
        """The stream it is in; its group is `workers`."""
        return JobName(self.queue, self.priority, self.type).stream

    def json(self) -> Any:
        """Decode the payload as JSON."""
        return orjson.loads(self.payload)
