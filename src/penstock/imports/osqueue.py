"""An osqueue file: one JSON object with the jobs that are not finished."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from penstock.core.delivery import State
from penstock.core.event import check_name
from penstock.core.imported import FROM, Found, Target, Was
from penstock.core.job import GROUP, JobName, check_job_name
from penstock.errors import InvalidInput, InvalidSource
from penstock.imports.source import GroupCount, counted, identity, known_words, origin
from penstock.log.jobs.submit import event_fields

_WORDS = ((State.PENDING, "unclaimed"), (State.CLAIMED, "in_progress"))
_MILLISECONDS = 1_000


class Osqueue:
    """The jobs of a file, for the job streams of one queue.

    The file is a picture of a queue at work, in which jobs have no lasting place: it is always read from its beginning,
    and jobs that are known are recognised by their ids.
    """

    system = "osqueue"
    resumes = False
    stop_first = "its broker and workers"

    def __init__(self, path: str, *, queue: str, priority: int = 0) -> None:
        file = Path(path)
        content = _content(file)
        self.name = f"{file.resolve()} for the queue {queue}"
        self.options: dict[str, Any] = {"queue": queue, "priority": priority}
        self.targets: list[Target] = []
        self.notes = {"completedTotal": content.get("completedTotal", 0)}
        self._origin = str(file.resolve())
        self._words = known_words(*_WORDS)
        self._queue, self._priority = queue, priority
        self._jobs: list[Any] = content["jobs"]
        check_job_name("type", queue, priority)

    def count(self) -> list[GroupCount]:
        """Count the jobs of each type."""
        found: dict[str, dict[str | None, int]] = {}
        for job in self._jobs:
            stream = self._stream(job)
            status = job.get("status") if isinstance(job, dict) else None
            by_word = found.setdefault(stream, {})
            by_word[status] = by_word.get(status, 0) + 1
        return [GroupCount(stream, GROUP, counted(words, self._words, "The file")) for stream, words in found.items()]

    def _stream(self, job: Any) -> str:
        """Return the stream of a job; one with an unfit type is counted, too."""
        job_type = job.get("type") if isinstance(job, dict) else None
        return JobName(self._queue, self._priority, str(job_type)[:80]).stream

    def read(self, after: Any) -> Iterator[Found]:
        """Yield the jobs in the order of the file."""
        for number, job in enumerate(self._jobs):
            yield self._found(number, job)

    def _found(self, number: int, job: dict[str, Any]) -> Found:
        given = job.get("id")
        event_id, noted = identity(self._origin, None if given is None else str(given), str(number))
        attempts = job.get("attempts")
        was = Was(self._words[str(job.get("status")).lower()], attempts if isinstance(attempts, int) else 0)
        settings = {
            "payload": orjson.dumps(job.get("payload")),
            "event_id": event_id,
            "max_attempts": job.get("maxAttempts"),
        }
        unfit = None
        fields: dict[str, Any] = {"type": job.get("type"), **settings}
        try:
            check_name(job.get("type"), "type")
            fields = event_fields(check_job_name(job.get("type"), self._queue, self._priority), settings)
        except InvalidInput as error:
            unfit = error.message
        known = origin(_time(job.get("createdAt")), worker=job.get("workerId"))
        fields["metadata"] = {**fields.get("metadata", {}), **noted, **({FROM: known[FROM]} if known else {})}
        fields["content_type"] = "application/json"
        return Found(number if given is None else str(given), self._stream(job), fields, {GROUP: was}, unfit)

    def close(self) -> None:
        """Forget the jobs."""
        self._jobs = []


def _content(file: Path) -> dict[str, Any]:
    """Read the file; `InvalidSource` if it is not what osqueue writes."""
    try:
        content = orjson.loads(file.read_bytes())
    except OSError as error:
        raise InvalidSource(f"Cannot read {file}: {error.strerror}.") from error
    except orjson.JSONDecodeError as error:
        raise InvalidSource(f"{file} is not JSON: {error}.") from error
    jobs = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise InvalidSource(f"{file} is not an osqueue file: it has no list `jobs` of objects.")
    return dict(content)


def _time(value: Any) -> datetime | str | None:
    """Return a time in milliseconds as one; a text stays a text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value / _MILLISECONDS, UTC)
        except (ValueError, OverflowError, OSError):
            return str(value)
    return value if isinstance(value, str) else None
