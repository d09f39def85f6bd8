"""Pages 000 and 002: what a relay does with an event, shown with a publisher that keeps what it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.app import App
from penstock.declare.publisher import OK, Message, Result
from penstock.testing.clauses.bench import PROMPT, Bench
from penstock.testing.clauses.registry import clause

_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class _Target:
    """A publisher that keeps its messages, and answers as it is told."""

    def __init__(self, *answers: Result) -> None:
        self.messages: list[Message] = []
        self._answers = list(answers)

    def publish(self, messages: Sequence[Message]) -> Sequence[Result]:
        self.messages += messages
        return [self._answers.pop(0) if self._answers else OK for _ in messages]


def _relayed(b: Bench, *answers: Result, **event: Any) -> tuple[Message, ...]:
    """Append an event and let a relay publish it; return what the publisher was sent."""
    b.append(**event)
    target = _Target(*answers)
    app = App(name="relay")
    app.publish(b.stream, group="g", publisher=target, retry=PROMPT)
    with b.running(app) as harness:
        harness.drain()
    return tuple(target.messages)


@clause("000-15", "a relay publishes with a publisher")
def a_relay_publishes(b: Bench) -> None:
    event = b.append({"n": 7})
    target = _Target(Result.retry("busy", "not now"))
    app = App(name="relay")
    app.publish(b.stream, group="g", publisher=target, retry=PROMPT)
    with b.running(app) as harness:
        harness.drain()
    assert [(one.id, one.json()) for one in target.messages] == [(str(event), {"n": 7})] * 2
    done = b.of(event)
    assert (str(done.state), done.attempts, done.failures) == ("PUBLISHED", 2, 1)


@clause("002-15", "the partition key is used by the publisher")
def partition_key_is_used(b: Bench) -> None:
    (message,) = _relayed(b, partition_key="p-1", ordering_key="o-1")
    assert message.key == "p-1"


@clause("002-21", "metadata is not sent to the target")
def metadata_stays(b: Bench) -> None:
    (message,) = _relayed(b, metadata={"note": "internal"}, headers={"tenant": "eu"})
    assert not hasattr(message, "metadata") and [*message.headers] == [("tenant", "eu")]


@clause("002-22", "the trace context lives in metadata")
def trace_context_in_metadata(b: Bench) -> None:
    (message,) = _relayed(b, metadata={"traceparent": _TRACE})
    assert [*message.headers] == [("traceparent", _TRACE)]


@clause("002-23", "headers are part of the publish")
def headers_are_published(b: Bench) -> None:
    (message,) = _relayed(b, headers={"tenant": "eu", "empty": ""})
    assert dict(message.headers) == {"tenant": "eu", "empty": ""}


@clause("002-24", "headers are sent as they are")
def headers_as_they_are(b: Bench) -> None:
    given = {"Tenant": " EU ", "city": "Zürich", "json": '{"a": 1}', "traceparent": _TRACE}
    (message,) = _relayed(b, headers=given, metadata={"traceparent": "another"})
    assert dict(message.headers) == given and len(message.headers) == len(given)
