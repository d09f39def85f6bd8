"""An osqueue file: one JSON object with the jobs that are not finished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.core.delivery import State
from penstock.core.event import check_name
from penstock.core.imported import FROM, Found, Target, Was
from penstock.core.job import GROUP, JobName, check_job_name
from penstock.errors import InvalidInput, InvalidSource
from penstock.imports.fields import identity, moment, origin, shown
from penstock.imports.source import GroupCount, counted, known_words
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
    state = None

    def __init__(self, path: str, *, queue: str, priority: int = 0) -> None:
        file = Path(path)
        content = _content(file)
        self.name = f"{file.resolve()} for the queue {queue}"
        self.options: dict[str, Any] = {"queue": queue, "priority": priority}
        self.targets: list[Target] = []
        self.notes = {"completedTotal": _total(content.get("completedTotal") or 0)}
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
            status = str(job.get("status"))
            by_word = found.setdefault(stream, {})
            by_word[status] = by_word.get(status, 0) + 1
        return [GroupCount(stream, GROUP, counted(words, self._words, "The file")) for stream, words in found.items()]

    def _stream(self, job: dict[str, Any]) -> str:
        """Return the stream of a job; one with an unfit type is counted, too."""
        return JobName(self._queue, self._priority, shown(job.get("type"), 80)).stream

    def read(self, after: Any) -> Iterator[Found]:
        """Yield the jobs in the order of the file."""
        for number, job in enumerate(self._jobs):
            yield self._found(number, job)

    def _found(self, number: int, job: dict[str, Any]) -> Found:
        given = None if job.get("id") is None else shown(job["id"])
        event_id, noted = identity(self._origin, given, str(number))
        payload, unfit = _encoded(job.get("payload"))
        attempts = job.get("attempts")
        was = Was(self._words[str(job.get("status")).lower()], max(0, attempts) if isinstance(attempts, int) else 0)
        settings = {
            "payload": payload,
            "event_id": event_id,
            "max_attempts": job.get("maxAttempts"),
        }
        fields: dict[str, Any] = {"type": job.get("type"), **settings}
        try:
            check_name(job.get("type"), "type")
            fields = event_fields(check_job_name(job.get("type"), self._queue, self._priority), settings)
        except InvalidInput as error:
            unfit = error.message
        worker = job.get("workerId")
        known = origin(_time(job.get("createdAt")), worker=None if worker is None else shown(worker))
        fields["metadata"] = {**fields.get("metadata", {}), **noted, **({FROM: known[FROM]} if known else {})}
        fields["content_type"] = "application/json"
        return Found(number if given is None else given, self._stream(job), fields, {GROUP: was}, unfit)

    def close(self) -> None:
        """Forget the jobs."""
        self._jobs = []


def _content(file: Path) -> dict[str, Any]:
    """Read the file; `InvalidSource` if it is not what osqueue writes."""
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise InvalidSource(f"Cannot read {file}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise InvalidSource(f"{file} is not JSON: {error}.") from error
    jobs = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise InvalidSource(f"{file} is not an osqueue file: it has no list `jobs` of objects.")
    return dict(content)


def _encoded(payload: Any) -> tuple[bytes | None, str | None]:
    """Return a payload as JSON with every digit of its numbers, or why it cannot be."""
    try:
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(), None
    except (ValueError, RecursionError) as error:
        return None, f"The payload cannot be encoded: {error}."


def _time(value: Any) -> datetime | str | None:
    """Return a time in milliseconds as one; a text stays a text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return moment(value / _MILLISECONDS) or str(value)
        except OverflowError:
            return None
    return shown(value) if isinstance(value, str) else None


def _total(value: Any) -> int | str:
    """Return how many jobs were completed; anything else as a text, for whoever reads the audit."""
    return value if isinstance(value, int) and abs(value) < 2**53 else shown(value, 80)
