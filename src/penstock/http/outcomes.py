"""What a settle says over HTTP, and how it becomes what the lease takes."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from penstock.core.signals import RetryLater
from penstock.http.bodies import Body, Number, Whole
from penstock.http.events import ID, NewEvent
from penstock.log.lease import Lease


class Failed(Body):
    """Why an event failed; text alone is its message."""

    message: str
    code: str | None = Field(None, description="A short stable code, such as the name of the exception.")
    retry_in: Number | None = Field(None, description="Seconds to wait instead of the backoff.")


class Emitted(NewEvent):
    """An event to append to a stream, in the settle's own transaction."""

    model_config = ConfigDict(json_schema_extra={"required": ["stream", "payload", "type"]})

    stream: str | None = None


class Settle(Body):
    """All outcomes of a lease. Events named nowhere are done, or, with `rest: release`, released."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"token": 1048577, "failed": {ID: "no such customer"}, "rest": "done"}]}
    )

    token: Whole | str
    failed: dict[str, Failed | str] = Field({}, description="By event id: the error, and it is retried.")
    dead: dict[str, Failed | str] = Field({}, description="By event id: the error, and it is DEAD at once.")
    released: list[str] = Field([], description="Given back, due at once.")
    keep: list[str] = Field([], description="Still running: each goes on in a lease of its own.")
    done: list[str] = Field([], description="Done; needed only with `rest: release`.")
    state: dict[str, dict[str, Any]] = Field({}, description="By ordering key: values by name; null removes one.")
    emit: list[Emitted] = Field([], description="Needs the scope `append` for their streams.")
    rest: str = Field("done", pattern="^(done|release)$")

    def outcomes(self, lease: Lease) -> dict[str, Any]:
        """Return the arguments of `Lease.settle`, given the lease with its events."""
        released = [*self.released]
        if self.rest == "release":
            named = {*self.failed, *self.dead, *self.released, *self.keep, *self.done}
            released += [str(one.event_id) for one in lease.events if str(one.event_id) not in named]
        return {
            "failed": {one: error_of(said) for one, said in self.failed.items()},
            "dead": {one: error_of(said) for one, said in self.dead.items()},
            "released": released,
            "keep": self.keep,
            "state": self.state,
            "emit": [one.fields() for one in self.emit],
        }

    @property
    def names_events(self) -> bool:
        """Whether the events of the lease must be read to understand it."""
        return bool(self.failed or self.dead or self.released or self.keep or self.done or self.rest == "release")


class Reported(str):
    """The text of an error that another process has caught, with the code that it gave."""

    code: str | None = None


def error_of(said: Failed | str) -> Any:
    """Return an error as the log takes it."""
    if isinstance(said, str):
        return said
    if said.retry_in is not None:
        later = RetryLater(said.retry_in, said.message)
        later.code = said.code  # type: ignore[attr-defined]  # looked for on every error
        return later
    reported = Reported(said.message)
    reported.code = said.code
    return reported
