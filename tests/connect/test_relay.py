"""The relay: events become messages, results become outcomes, on both stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import penstock
from penstock.connect import OK, Message, Result
from tests.support.declarations import RETRY_AT_ONCE
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.log_steps import append_orders, count_by_state
from tests.support.waiting import wait_until

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


class Target:
    """A publisher that keeps what it was sent, and answers as it is told."""

    def __init__(self, answer: Callable[[Message], Result] = lambda message: OK, batch: int = 100) -> None:
        self.batch = batch
        self.calls: list[list[Message]] = []
        self.answer = answer
        self.closed = 0
        self._lock = threading.Lock()

    def publish(self, messages: Sequence[Message]) -> Sequence[Result]:
        with self._lock:
            self.calls.append(list(messages))
        return [self.answer(message) for message in messages]

    def close(self) -> None:
        self.closed += 1

    @property
    def messages(self) -> list[Message]:
        return [message for call in self.calls for message in call]


def relayed(log: penstock.Log, target: Any, **options: Any) -> None:
    """Publish everything in `orders`."""
    app = penstock.App(name="shop")
    app.publish("orders", group="g", publisher=target, **{"retry": RETRY_AT_ONCE, **options})
    run_local_until_drained(log, *app.subscriptions)


def outcome(log: penstock.Log, event_id: Any) -> tuple[str, int, str | None]:
    found = log.delivery("orders", "g", event_id)
    return str(found.state), found.failures, found.error_code


@pytest.mark.shows("R01")
def test_a_message_has_everything_of_its_event_but_the_metadata(log: penstock.Log) -> None:
    log.append(
        "orders", b"\x00\xff", type="t", headers={"tenant": "eu"}, metadata={"secret": "s3"}, partition_key="p",
        ordering_key="k", content_type="image/png", event_id=ULID,
    )  # fmt: skip
    target = Target()
    relayed(log, target)
    (message,) = target.messages
    assert (message.id, message.type, message.payload, message.content_type) == (ULID, "t", b"\x00\xff", "image/png")
    assert (message.topic, message.key, message.headers) == ("orders", "p", [("tenant", "eu")])
    assert not hasattr(message, "metadata") and target.closed == 1


@pytest.mark.shows("R10")
@pytest.mark.parametrize("given", [ULID, ULID.lower(), "0190163D8694739B86CBE1E8CBBE6BD1"])
def test_an_id_is_sent_as_it_was_given(log: penstock.Log, given: str) -> None:
    log.append("orders", {}, type="t", event_id=given, metadata={"note": 1})
    assert log.append("orders", {}, type="t", event_id=given).duplicate
    target = Target()
    relayed(log, target)
    assert [message.id for message in target.messages] == [given]


@pytest.mark.shows("R01", "R06")
@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (OK, ("PUBLISHED", 0, None)),
        (Result("ok"), ("PUBLISHED", 0, None)),
        (Result.retry("busy", "try again"), ("DEAD", 2, "busy")),
        (Result.retry("busy", "try again", after_seconds=0.0), ("DEAD", 2, "busy")),
        (Result.permanent("too_large", "never"), ("DEAD", 1, "too_large")),
        (Result.skipped("not for us"), ("PUBLISHED", 0, None)),
    ],
    ids=["ok", "another ok", "retry", "retry after", "permanent", "skipped"],
)
def test_a_result_is_the_outcome_of_its_event_alone(log: penstock.Log, result: Result, wanted: Any) -> None:
    ids = append_orders(log, 5)
    target = Target(lambda message: result if message.json()["n"] == 2 else OK)
    relayed(log, target)
    assert [outcome(log, one) for one in ids] == [("PUBLISHED", 0, None)] * 2 + [wanted] + [("PUBLISHED", 0, None)] * 2


@pytest.mark.shows("R10")
def test_topic_key_and_headers_by_rule_and_by_function(log: penstock.Log) -> None:
    log.append("orders", {}, type="order.created", ordering_key="c-1", headers={"a": "1"})
    log.append("orders", {}, type="refund.made", ordering_key="c-2")
    log.append("orders", {}, type="note", event_id=ULID)
    target = Target()
    relayed(
        log,
        target,
        topic={"order.*": "shop.{type}", "refund.*": "money"},
        key=lambda event: event.ordering_key.upper(),
        headers=lambda event: [("a", b"\xff"), ("a", "3")],
    )
    assert [(one.topic, one.key, one.headers) for one in target.messages] == [
        ("shop.order.created", "C-1", [("a", "1"), ("a", b"\xff"), ("a", "3")]),
        ("money", "C-2", [("a", b"\xff"), ("a", "3")]),
    ]
    skipped = log.delivery("orders", "g", ULID)
    assert (str(skipped.state), skipped.reason) == ("PUBLISHED", "skipped: no topic")


@pytest.mark.shows("R10")
def test_a_rule_that_raises_or_returns_nonsense_fails_its_event_alone(log: penstock.Log) -> None:
    ids = append_orders(log, 4)

    def topic(event: penstock.Event) -> Any:
        return {0: "ok", 1: 7, 2: ""}.get(event.json()["n"]) or 1 / 0

    target = Target()
    relayed(log, target, topic=topic)
    assert [one.topic for one in target.messages] == ["ok"]
    assert [outcome(log, one)[::2] for one in ids] == [
        ("PUBLISHED", None),
        ("DEAD", "invalid_publisher"),
        ("DEAD", "ZeroDivisionError"),
        ("DEAD", "ZeroDivisionError"),
    ]


@pytest.mark.shows("R06")
def test_a_publisher_that_raises_is_cut_down_to_its_culprit(log: penstock.Log) -> None:
    ids = append_orders(log, 40)

    class Fragile(Target):
        def publish(self, messages: Sequence[Message]) -> Sequence[Result]:
            if any(message.json()["n"] == 17 for message in messages):
                raise ValueError("cannot encode")
            return super().publish(messages)

    relayed(log, Fragile())
    assert outcome(log, ids[17]) == ("DEAD", 2, "ValueError")
    assert count_by_state(log) == {"published": 39, "dead": 1}


@pytest.mark.shows("R01")
@pytest.mark.parametrize(
    "answer",
    [
        lambda messages: [OK] * (len(messages) + 1),
        lambda messages: "ok",
        lambda messages: ["ok"] * len(messages),
        lambda messages: [Result("fine")] * len(messages),
    ],
    ids=["one too many", "no list", "text", "unknown kind"],
)
def test_what_is_no_result_is_a_failure_of_the_publisher(log: penstock.Log, answer: Any) -> None:
    ids = append_orders(log, 3)

    class Wrong:
        def publish(self, messages: Sequence[Message]) -> Any:
            return answer(messages)

    relayed(log, Wrong())
    assert [outcome(log, one) for one in ids] == [("DEAD", 2, "invalid_publisher")] * 3


@pytest.mark.shows("R03", "K42")
@pytest.mark.parametrize("how", ["result", "unavailable", "connection"])
def test_a_target_that_is_down_opens_the_circuit_and_counts_no_failure(log: penstock.Log, how: str) -> None:
    ids = append_orders(log, 10)
    down = threading.Event()
    down.set()

    def answer(message: Message) -> Result:
        if not down.is_set():
            return OK
        if how == "connection":
            raise ConnectionRefusedError("nobody listens")
        if how == "unavailable":
            raise penstock.Unavailable("maintenance")
        return Result.unavailable("http_503", "maintenance")

    target = Target(answer)
    app = penstock.App(name="shop")
    app.publish("orders", group="g", publisher=target)
    from penstock.engine.local.engine import LocalEngine

    engine = LocalEngine(log, app.subscriptions)
    engine.start()
    try:
        wait_until(lambda: log.groups("orders")[0].circuit is not None)
        down.clear()
        wait_until(lambda: count_by_state(log) == {"published": 10})
        wait_until(lambda: log.groups("orders")[0].circuit is None)
    finally:
        engine.stop()
        engine.wait(PATIENCE_SECONDS)
    assert {outcome(log, one)[:2] for one in ids} == {("PUBLISHED", 0)}


@pytest.mark.shows("R05", "K18", "K45")
def test_a_call_has_one_event_of_each_key_and_failures_hold_their_key_back(log: penstock.Log) -> None:
    for n in range(60):
        log.append("orders", {"n": n}, type="t", ordering_key=f"k{n % 4}")
    failed: set[int] = set()

    def answer(message: Message) -> Result:
        n = message.json()["n"]
        if n % 7 == 3 and n not in failed:
            failed.add(n)
            return Result.retry("busy", "once")
        return OK

    target = Target(answer)
    relayed(log, target, ordering="key", retry=penstock.Retry(max_attempts=3, base_seconds=0, jitter=0))
    for call in target.calls:
        keys = [message.key for message in call]
        assert len(keys) == len({*keys})
    arrived: dict[Any, list[int]] = {}
    for call in target.calls:
        for message in call:
            arrived.setdefault(message.key, []).append(message.json()["n"])
    for numbers in arrived.values():
        assert [*dict.fromkeys(numbers)] == sorted({*numbers})
    assert len(failed) > 5 and count_by_state(log) == {"published": 60}


@pytest.mark.shows("R09")
def test_the_trace_context_goes_from_append_to_target_and_to_what_is_emitted(log: penstock.Log) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    log.append("orders", {}, type="t", metadata={"traceparent": parent, "correlation_id": "c-7", "note": "mine"})
    log.append("orders", {}, type="t", metadata={"traceparent": parent}, headers={"Traceparent": "the producer's"})
    target = Target()
    relayed(log, target)
    assert [message.headers for message in target.messages] == [
        [("traceparent", parent), ("correlation-id", "c-7")],
        [("Traceparent", "the producer's")],
    ]

    app = penstock.App(name="shop")

    @app.subscribe("orders", group="h", isolation="inline")
    def forward(event: penstock.Event, ctx: penstock.Context) -> None:
        ctx.emit("next", {}, type="t")

    run_local_until_drained(log, *app.subscriptions)
    assert [event.metadata for event in log.read("next")] == [
        {"traceparent": parent, "correlation_id": "c-7"},
        {"traceparent": "the producer's"},
    ]


@pytest.mark.shows("R01")
@pytest.mark.parametrize("name", ["penstock-id", "Penstock-Type"])
def test_headers_that_penstock_sends_are_refused_to_producers(log: penstock.Log, name: str) -> None:
    with pytest.raises(penstock.InvalidInput, match="are set by Penstock"):
        log.append("orders", {}, type="t", headers={name: "x"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"publisher": print}, "penstock.connect.Callable"),
        ({"publisher": Target(), "topic": "{secret}"}, "in braces"),
        ({"publisher": Target(), "topic": "{"}, "cannot be read"),
        ({"publisher": Target(), "topic": 7}, "topic is"),
        ({"publisher": Target(), "topic": {"order.*": ""}}, "A topic is"),
        ({"publisher": Target(), "key": "nothing"}, "key is"),
        ({"publisher": Target(), "headers": ["a"]}, "headers is"),
        ({"publisher": Target(), "headers": {"Penstock-Id": "7"}}, "set by Penstock"),
        ({"publisher": Target(), "headers": {"a\0b": "7"}}, "Headers map"),  # Kafka would send it as `a`
        ({"publisher": Target}, "is no object"),
        ({"publisher": Target(batch="many")}, "batch"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_published_is_refused_when_it_is_declared(options: Any, says: str) -> None:
    app = penstock.App(name="shop")
    with pytest.raises(penstock.InvalidInput, match=says):
        app.publish("orders", group="g", **options)
    assert app.subscriptions == []


def test_a_group_has_a_publisher_or_handlers(log: penstock.Log) -> None:
    app = penstock.App(name="shop")
    app.publish("orders", group="g", publisher=Target())
    with pytest.raises(penstock.PolicyConflict):
        app.subscribe("orders", group="g")(lambda event: None)
    with pytest.raises(penstock.PolicyConflict):
        app.publish("orders", group="g", publisher=Target())
