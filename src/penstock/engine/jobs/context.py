"""The second argument of a job's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.batch import Event
from penstock.core.job import GROUP
from penstock.engine.handlers.context import Context, Scope
from penstock.engine.handlers.state import KeyState, Missing
from penstock.log.jobs.finish import check_progress

Note = Callable[[float | None, str | None], None]
_NO_STATE = KeyState(Missing("Jobs have no keyed state."))


class JobContext(Context):
    """Effects that commit together with the job, its progress, and whether it should end."""

    __slots__ = ("_flag", "_note")

    def __init__(self, event: Event, token: int, flag: list[bool], note: Note) -> None:
        super().__init__(event, _NO_STATE, Scope(GROUP, token))
        self._flag = flag
        self._note = note

    @property
    def job(self) -> Event:
        """The job as an event: its id, headers, attempts and payload."""
        return self._event

    @property
    def cancelled(self) -> bool:
        """Whether the job should end: it was cancelled, or its lease was lost."""
        return self._flag[0]

    def progress(self, done: float, message: str | None = None) -> None:
        """Say how much is done, from 0 to 1; it is stored about once a second."""
        self._note(check_progress(done), None if message is None else str(message))


def arguments(job: Any, event: Event) -> Any:
    """Return what a job's function gets: the model of its payload, or the payload decoded from JSON."""
    return event.json() if job.schema is None else job.schema.model_validate_json(event.payload)
