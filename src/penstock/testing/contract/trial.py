"""A trial of one publisher: messages to send, and what the target has got of them."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.batch import Events
from penstock.core.codec import JSON
from penstock.core.columns import RowColumns
from penstock.core.event import GIVEN_HEADERS, GIVEN_ID, parse_event_id
from penstock.core.signals import Unavailable
from penstock.declare.publisher import OK, Message, Publisher, Result
from penstock.declare.relay import AWAY, Relay
from penstock.testing.contract.received import Received

KINDS = ("ok", "retry", "permanent", "skipped", "unavailable")
_LOOK_SECONDS = 0.02


class Broken(AssertionError):
    """A rule of the contract that a publisher breaks."""


class Trial:
    """Sends through a publisher and looks at the target."""

    def __init__(
        self,
        publisher: Publisher,
        received: Callable[[], Iterable[Received]],
        topic: str | None,
        cannot: Collection[str],
        patience_seconds: float,
    ) -> None:
        self.publisher = publisher
        self.cannot = cannot
        self._received = received
        self._relay = Relay(publisher, topic)
        self._patience = patience_seconds
        self._offsets = itertools.count(1)
        self.spoken: list[str] = []  # whatever was said: texts of results and lines of logs

    def message(
        self,
        payload: bytes = b"{}",
        *,
        event_id: str | None = None,
        headers: Sequence[tuple[str, str | bytes]] = (),
        key: str | None = None,
        metadata: dict[str, Any] | None = None,
        content_type: str = JSON,
    ) -> Message:
        """Make a message as the relay makes it of a stored event."""
        given = event_id or str(uuid.uuid4())
        notes = {**(metadata or {}), GIVEN_ID: given}
        if headers:
            notes[GIVEN_HEADERS] = codec.encode_pairs(headers)
        row = (
            next(self._offsets),
            parse_event_id(given).bytes,
            "contract.checked",
            payload,
            content_type,
            None,
            orjson.dumps(notes).decode(),
            key,
            None,
            None,
            datetime.now(UTC),
        )
        made = self._relay.message(Events(RowColumns([row]), "contract", None)[0])
        assert made is not None
        return made

    def publish(self, messages: Sequence[Message]) -> Sequence[Result]:
        """Publish in one call; return a result for each message, whatever shape the answer had."""
        try:
            answer: Any = self.publisher.publish(messages)
        except (Unavailable, *AWAY) as error:
            answer = [Result.unavailable(type(error).__name__, str(error))] * len(messages)
        except Exception as error:
            raise Broken(f"publish raised {type(error).__name__}: {error}") from error
        if answer is None:
            return [OK] * len(messages)
        if not isinstance(answer, Sequence) or isinstance(answer, str | bytes) or len(answer) != len(messages):
            raise Broken(f"publish was given {len(messages)} messages and returned {answer!r:.200}")
        for one in answer:
            if not isinstance(one, Result) or one.kind not in KINDS:
                raise Broken(f"publish returned {one!r:.200}: a Result is one of {', '.join(KINDS)}")
            if one.kind != "ok" and (not isinstance(one.code, str) or not one.code or not isinstance(one.message, str)):
                raise Broken(f"a Result that is not ok has a code and a message: {one!r:.200}")
            self.spoken.append(f"{one.code} {one.message}")
        return list(answer)

    def send(self, messages: Sequence[Message], times: int = 1) -> list[Received]:
        """Publish in one call, which must succeed; return what arrived, in the order of the messages."""
        self.must_be_ok(messages, self.publish(messages))
        return self.arrived(messages, times)

    @staticmethod
    def must_be_ok(messages: Sequence[Message], results: Sequence[Result]) -> None:
        """Fail at the first message that was not sent."""
        for message, result in zip(messages, results, strict=True):
            if result.kind != "ok":
                raise Broken(f"{message!r} was not sent: {result}")

    def arrived(self, messages: Sequence[Message], times: int = 1) -> list[Received]:
        """Wait for messages at the target; each must be there so many times."""
        wanted = {message.id for message in messages}
        deadline = time.monotonic() + self._patience
        while True:
            found = [one for one in self._received() if one.id in wanted]
            counts = Counter(one.id for one in found)
            if all(counts[one] >= times for one in wanted) or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        for message in messages:
            if counts[message.id] != times:
                raise Broken(f"{message!r} arrived {counts[message.id]} times and not {times}")
        by_id = {one.id: one for one in found}
        return [by_id[message.id] for message in messages]

    def count(self, message: Message) -> int:
        """How often a message is at the target now."""
        return sum(one.id == message.id for one in self._received())


class Overheard(logging.Handler):
    """Notes everything that is logged."""

    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        self._into.append(record.getMessage())
