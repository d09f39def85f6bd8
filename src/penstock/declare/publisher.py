"""The publisher contract: what is sent of an event, and what became of it.

A publisher is an object with `publish(messages)`. One call is one attempt: it sends every message once, waits for the
target's answers, and returns a `Result` for each message, in their order (None: all are ok). It retries nothing and
may be called from several threads. If it raises, nobody knows which message was to blame: the engine finds out by
calling it with fewer. `penstock.testing.check_publisher` tests one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, runtime_checkable

from penstock.core.batch import Event, Events

Headers = Sequence[tuple[str, str | bytes]]


class Result(NamedTuple):
    """What became of a message. Use `OK` and the functions `retry`, `permanent`, `skipped` and `unavailable`."""

    kind: str
    code: str = ""
    message: str = ""
    after_seconds: float | None = None

    @staticmethod
    def retry(code: str, message: str, after_seconds: float | None = None) -> Result:
        """It failed this time: the group's retry policy applies, or the target's own wish for a pause."""
        return Result("retry", code, message, after_seconds)

    @staticmethod
    def permanent(code: str, message: str) -> Result:
        """It can never succeed: the event is DEAD at once."""
        return Result("permanent", code, message)

    @staticmethod
    def skipped(reason: str) -> Result:
        """It was not sent, on purpose: the event is PUBLISHED, with this reason."""
        return Result("skipped", "skipped", reason)

    @staticmethod
    def unavailable(code: str, message: str, after_seconds: float | None = None) -> Result:
        """The target is down: no failure is counted, and the circuit of the group opens."""
        return Result("unavailable", code, message, after_seconds)


OK = Result("ok")


class Message:
    """What is sent of an event: everything except its metadata."""

    __slots__ = ("_index", "_of", "content_type", "headers", "id", "key", "payload", "topic", "type")

    def __init__(
        self,
        of: Events,
        index: int,
        id: str,
        type: str,
        payload: bytes,
        content_type: str,
        topic: str,
        key: str | None,
        headers: Headers = (),
    ) -> None:
        self._of = of
        self._index = index
        self.id = id  # as it was given to `append`: a ULID stays a ULID; the same at every attempt
        self.type = type
        self.payload = payload  # the bytes that were appended
        self.content_type = content_type
        self.topic = topic
        self.key = key
        self.headers = headers  # the event's own, then those of the rule; a name may occur twice

    @property
    def stream(self) -> str:
        """The stream of the event."""
        return self._of.stream

    @property
    def offset(self) -> int:
        """The position of the event in the log."""
        return self._of.offsets[self._index]

    @property
    def created_at(self) -> datetime:
        """When the event was appended."""
        return Event(self._of, self._index).created_at

    def json(self) -> Any:
        """Decode the payload as JSON."""
        return Event(self._of, self._index).json()

    def __repr__(self) -> str:
        return f"<Message {self.id} {self.type}>"


@runtime_checkable
class Publisher(Protocol):
    """Something that sends messages to a target. Connections are made by the first call in each process.

    Optional attributes: `topic`, where messages go if nothing else is said; `batch`, the number of messages in one
    call; `target`, what to call it in logs, without a password; `close()`, called when a worker ends.
    """

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Send every message once; return what became of each."""
