"""The second argument of a job's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.batch import Event
from penstock.core.job import GROUP
from penstock.declare.job import JobType
from penstock.engine.handlers.context import Context, Scope
from penstock.engine.handlers.state import KeyState, Missing
from penstock.log.jobs.finish import check_progress

Note = Callable[[float | None, str | None], None]
_NO_STATE = KeyState(Missing("Jobs have no keyed state."))


class JobContext(Context):
    """Effects that commit together with the job, its progress, and whether it should end."""

    __slots__ = ("_note", "_unwanted")

    def __init__(self, event: Event, token: int, unwanted: Callable[[], bool], note: Note) -> None:
        super().__init__(event, _NO_STATE, Scope(GROUP, token))
        self._unwanted = unwanted
        self._note = note

    @property
    def job(self) -> Event:
        """The job as an event: its id, headers, attempts and payload."""
        return self._event

    @property
    def cancelled(self) -> bool:
        """Whether the job should end: it was cancelled, or its lease was lost."""
        return self._unwanted()

    def progress(self, done: float, message: str | None = None) -> None:
        """Say how much is done, from 0 to 1; it is stored about once a second."""
        self._note(check_progress(done), None if message is None else codec.error_text(message))


def decoder(job: JobType) -> Callable[[bytes], Any]:
    """Return what makes of a payload the argument of a job's function: its model, or what its JSON says."""
    return orjson.loads if job.schema is None else job.schema.model_validate_json
