"""The relay of a group: a batch handler that publishes events and turns the results into their outcomes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.batch import Chosen, Event
from penstock.core.signals import Permanent, RetryLater, Skipped, Unavailable
from penstock.declare.load import Reference
from penstock.declare.locate import reference_to_object
from penstock.declare.publisher import OK, Headers, Message, Publisher, Result
from penstock.declare.route import headers_of, key_of, own_headers, topic_of
from penstock.errors import HandlerUnreachable, InvalidPublisher

AWAY = (ConnectionError, socket.gaierror)  # what a target that is down raises, whatever the client
_BATCH = 1_000


def plain_messages(events: Sequence[Event], topic: Any) -> list[Message] | None:
    """Return the messages of many events that have neither headers nor metadata; None if one has some.

    Column by column: a relay spends most of its time here.
    """
    if isinstance(events, Chosen):
        of, indexes = events.of, events.indexes
    else:
        of, indexes = events[0]._of, [event._index for event in events]
    first, last = indexes[0], indexes[-1] + 1
    if last - first != len(events):
        return None
    if any(of.column("metadata")[first:last]) or any(of.column("headers")[first:last]):
        return None
    where = of.stream if topic is None else topic
    columns = (
        range(first, last),
        of.id_texts(first, last),
        of.event_types[first:last],
        of.payloads[first:last],
        of.column("content_type")[first:last],
        of.column("partition_key")[first:last],
        of.ordering_keys[first:last],
    )
    return [
        Message(of, index, id_text, kind, payload, content_type, where, partition_key or ordering_key)
        for index, id_text, kind, payload, content_type, partition_key, ordering_key in zip(*columns, strict=True)
    ]


class Relay:
    """Publishes the events of a group. Called with a list of events, like a batch handler."""

    takes_chosen = True

    def __init__(self, publisher: Publisher, topic: Any = None, key: Any = None, headers: Any = None) -> None:
        if isinstance(publisher, type) or not callable(getattr(publisher, "publish", None)):
            raise InvalidPublisher(
                f"{publisher!r:.80} is no object that has publish(messages). A function is wrapped: "
                "penstock.connect.Callable(fn)."
            )
        self.publisher = publisher
        self._topic = topic_of(topic, getattr(publisher, "topic", None))
        self._key = key_of(key)
        self._more = headers_of(headers)
        self._plain = self._key is None and self._more is None and not callable(self._topic)
        self._home: tuple[Any, int] | None = None

    def __repr__(self) -> str:
        return f"publish to {self.target}"

    def found_in(self, app: Any, place: int) -> None:
        """Note which subscription of an app it belongs to, so that another process can find it there."""
        self._home = app, place

    def reference(self) -> RelayReference:
        """Return how another process finds it: through its app, since a publisher may hold a password."""
        if self._home is None:
            raise HandlerUnreachable(f"{self.target} belongs to no app.")
        app, place = self._home
        return RelayReference(reference_to_object(app), place)

    @property
    def target(self) -> str:
        """What the target is called in logs."""
        return str(getattr(self.publisher, "target", type(self.publisher).__name__))

    @property
    def batch(self) -> int:
        """Messages in one call."""
        batch: int | None = getattr(self.publisher, "batch", None)
        return _BATCH if batch is None else batch  # checked with the group's policy

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        close = getattr(self.publisher, "close", None)
        if close is not None:
            close()

    def __call__(self, events: Sequence[Event]) -> dict[Event, BaseException] | None:
        """Publish; return the events that are not simply done, each with the reason."""
        if self._plain and (messages := plain_messages(events, self._topic)):
            return self._outcomes(events, messages, {})
        outcomes: dict[Event, BaseException] = {}
        sent: list[Event] = []
        messages = []
        for event in events:
            try:
                message = self.message(event)
            except Exception as error:  # the user's function raised: the fault of this event alone
                outcomes[event] = error
                continue
            if message is None:
                outcomes[event] = Skipped("no topic")
            else:
                sent.append(event)
                messages.append(message)
        return self._outcomes(sent, messages, outcomes)

    def _outcomes(
        self, sent: Sequence[Event], messages: Sequence[Message], outcomes: dict[Event, BaseException]
    ) -> dict[Event, BaseException] | None:
        results = self._publish(messages) if messages else None
        if results is not None:
            for event, result in zip(sent, results, strict=True):
                if result is not OK and (outcome := self._outcome(result)) is not None:
                    outcomes[event] = outcome
        return outcomes or None

    def message(self, event: Event) -> Message | None:
        """Return what is sent of an event; None if it has no topic."""
        topic = self._topic
        if topic is None:
            topic = event.stream
        elif not isinstance(topic, str):
            topic = topic(event)
            if topic is None:
                return None
        key = self._key(event) if self._key is not None else event.partition_key or event.ordering_key
        headers: Headers = own_headers(event)
        if self._more is not None:
            headers = [*headers, *self._more(event)]
        of, index = event._of, event._index
        body, kind = event.payload, event.content_type
        return Message(of, index, event.given_id, event.event_type, body, kind, topic, key, headers)

    def _publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        try:
            results = self.publisher.publish(messages)
        except AWAY as error:
            raise Unavailable(f"{self.target}: {type(error).__name__}: {error}") from error
        if results is not None and (not isinstance(results, Sequence) or len(results) != len(messages)):
            raise InvalidPublisher(f"{self.target} was given {len(messages)} messages: return a Result for each.")
        return results

    def _outcome(self, result: Result) -> BaseException | None:
        """Return what an event ends with; None if it was sent."""
        if not isinstance(result, Result):
            raise InvalidPublisher(f"publish returns Results, not {type(result).__name__}.")
        made: BaseException
        after = result.after_seconds
        if result.kind == "ok":
            return None
        if result.kind == "retry":
            made = Exception(result.message) if after is None else RetryLater(after, result.message)
        elif result.kind == "permanent":
            made = Permanent(result.message)
        elif result.kind == "skipped":
            return Skipped(result.message)
        elif result.kind == "unavailable":
            made = Unavailable(f"{self.target}: {result.message}")
            made.after_seconds = after
        else:
            raise InvalidPublisher(f"A result is ok, retry, permanent, skipped or unavailable, not {result.kind!r}.")
        made.code = result.code  # type: ignore[attr-defined]
        return made


@dataclass(frozen=True, slots=True)
class RelayReference:
    """A relay on its way to another process."""

    app: Reference
    place: int

    def resolve(self) -> Relay:
        """Return the relay of the app in this process."""
        relay = self.app.resolve().subscriptions[self.place].handlers[0].function
        if not isinstance(relay, Relay):
            raise HandlerUnreachable("The app declares something else here than where the run was started.")
        return relay
