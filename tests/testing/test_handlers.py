"""`run_handler`: one handler on one event, as the engine calls it, without a database."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Context, Event, Permanent, RetryLater, Unavailable
from penstock.testing import Emitted, VirtualClock, run_handler

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def screen(event: Event, ctx: Context) -> None:
    """Use every part of a context."""
    order = event.json()
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    ctx.emit("alerts", {"order": order["id"]}, type="alert.raised", ordering_key=event.ordering_key)
    ctx.execute("insert into scores values (?, ?)", (order["id"], 1))
    if order.get("bad"):
        raise ValueError("bad order")


def test_a_plain_handler_without_a_context_succeeds() -> None:
    seen: list[Any] = []
    handled = run_handler(lambda event: seen.append(event.json()), {"id": 7})
    assert seen == [{"id": 7}]
    assert (handled.outcome, handled.error, handled.exception) == ("done", None, None)
    assert (handled.emitted, handled.state, handled.executed) == ([], {}, [])


def test_effects_are_returned_with_the_state_of_the_key() -> None:
    handled = run_handler(screen, {"id": 7}, ordering_key="c-42", state={"seen": 2, "name": "ada"})
    assert handled.outcome == "done"
    assert handled.emitted == [Emitted("alerts", {"order": 7}, type="alert.raised", ordering_key="c-42")]
    assert handled.state == {"seen": 3, "name": "ada"}
    assert handled.executed == [("insert into scores values (?, ?)", (7, 1))]


def test_a_handler_that_fails_leaves_no_effects() -> None:
    handled = run_handler(screen, {"id": 7, "bad": True}, ordering_key="c-42", state={"seen": 2})
    assert handled.outcome == "failed"
    assert (handled.emitted, handled.state, handled.executed) == ([], {"seen": 2}, [])
    assert handled.error is not None
    assert (handled.error.code, handled.error.message) == ("ValueError", "bad order")
    assert isinstance(handled.exception, ValueError)
    assert handled.exception.__traceback__ is not None


@pytest.mark.parametrize(
    ("error", "outcome", "code", "after"),
    [
        (Permanent("never"), "dead", "Permanent", None),
        (RetryLater(90, "busy"), "failed", "RetryLater", 90),
        (Unavailable("down"), "unavailable", "Unavailable", None),
        (SystemExit(3), "failed", "SystemExit", None),
        (penstock.UnknownEvent("gone"), "failed", "unknown_event", None),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, BaseException) else "",
)
def test_what_is_raised_decides_the_outcome(error: BaseException, outcome: str, code: str, after: float | None) -> None:
    def handle(event: Event, ctx: Context) -> None:
        ctx.emit("alerts", {}, type="alert.raised")
        raise error

    handled = run_handler(handle, {})
    assert handled.outcome == outcome
    assert handled.error is not None
    assert (handled.error.code, handled.error.retry_after_seconds) == (code, after)
    assert handled.emitted == []
    assert handled.exception is error


def test_an_async_handler_is_awaited() -> None:
    async def handle(event: Event, ctx: Context) -> None:
        await asyncio.sleep(0)
        ctx.state["seen"] = event.json()["id"]

    assert run_handler(handle, {"id": 7}, ordering_key="a").state == {"seen": 7}


def test_an_async_handler_that_takes_too_long_is_timed_out() -> None:
    async def handle(event: Event) -> None:
        await asyncio.Event().wait()

    handled = run_handler(handle, {}, timeout_seconds=0.01)
    assert handled.outcome == "failed"
    assert handled.error is not None and handled.error.code == "timed_out"


def test_an_async_handler_is_refused_where_a_loop_runs_already() -> None:
    async def handle(event: Event) -> None: ...

    async def main() -> None:
        assert run_handler(lambda event: None, {}).outcome == "done"  # a plain one needs no loop
        with pytest.raises(penstock.InvalidInput, match="to_thread"):
            run_handler(handle, {})
        assert (await asyncio.to_thread(run_handler, handle, {})).outcome == "done"

    asyncio.run(main())


def test_the_event_has_every_field_of_a_stored_one(tmp_path: Path) -> None:
    clock = VirtualClock(NOON)
    fields = {
        "type": "order.created",
        "ordering_key": "c-42",
        "headers": {"tenant": "eu"},
        "metadata": {"trace": [1, 2]},
        "partition_key": "p",
        "event_id": penstock.event_id("order-7"),
        "available_at": NOON - timedelta(hours=1),
    }
    with penstock.open(f"sqlite:///{tmp_path}/log.db", clock=clock) as log:
        log.append("orders", {"id": 7}, **fields)
        log.create_group("orders", "fraud")
        lease = log.claim("orders", "fraud", claimed_by="test")
        assert lease is not None
        stored = everything(lease.events[0])
    made: list[dict[str, Any]] = []
    run_handler(lambda event: made.append(everything(event)), {"id": 7}, stream="orders", clock=clock, **fields)
    assert made == [stored]


def everything(event: Event) -> dict[str, Any]:
    names = [name for name in vars(Event) if isinstance(vars(Event)[name], property)]
    assert len(names) > 15
    return {**{name: getattr(event, name) for name in names}, "json": event.json()}


def test_an_event_without_any_field_given_is_a_first_attempt() -> None:
    seen: list[Event] = []
    before = datetime.now(UTC)
    run_handler(seen.append, b"\x00raw")
    (event,) = seen
    assert (event.stream, event.event_type, event.payload) == ("test", "test", b"\x00raw")
    assert (event.content_type, event.headers, event.ordering_key) == ("application/octet-stream", {}, None)
    assert (event.attempts, event.failures, event.last_error, event.replays) == (1, 0, None, 0)
    assert (event.state, event.claimed_by) == (penstock.State.CLAIMED, "test")
    assert before <= event.created_at <= datetime.now(UTC)


def test_a_later_attempt_can_be_simulated() -> None:
    seen: list[Event] = []
    keys: list[str] = []

    def handle(event: Event, ctx: Context) -> None:
        seen.append(event)
        keys.append(ctx.idempotency_key)
        assert ctx.token == 99

    number = uuid.UUID(int=7)
    handled = run_handler(
        handle,
        {},
        attempts=3,
        failures=2,
        last_error="no answer",
        replays=1,
        created_at=NOON,
        event_id=number,
        group="fraud",
        token=99,
    )
    assert handled.outcome == "done", handled.exception
    (event,) = seen
    assert (event.attempts, event.failures, event.last_error, event.replays) == (3, 2, "no answer", 1)
    assert event.created_at == NOON
    assert keys == [f"fraud:{number}:1"]


def test_state_can_be_removed_and_given_a_ttl() -> None:
    def handle(event: Event, ctx: Context) -> None:
        del ctx.state["old"]
        ctx.state.set("recent", [1], ttl_seconds=60)

    assert run_handler(handle, {}, ordering_key="a", state={"old": 1}).state == {"recent": [1]}


def test_the_given_state_is_not_changed() -> None:
    before = {"list": [1]}

    def handle(event: Event, ctx: Context) -> None:
        values = ctx.state["list"]
        values.append(2)
        ctx.state["list"] = values

    assert run_handler(handle, {}, ordering_key="a", state=before).state == {"list": [1, 2]}
    assert before == {"list": [1]}


def test_emitted_events_show_every_field_decoded() -> None:
    number = uuid.UUID(int=8)

    def handle(event: Event, ctx: Context) -> None:
        ctx.emit(
            "alerts",
            {"n": 1},
            type="alert.raised",
            headers={"tenant": "eu"},
            metadata={"why": ["x"]},
            partition_key="p",
            available_at=NOON,
            event_id=number,
        )
        ctx.emit("raw", b"7", type="image")
        ctx.emit("raw", b'{"a": 1}', type="said", content_type="application/cloudevents+json")
        ctx.emit("raw", b"{not json", type="said", content_type="application/json")

    first, *rest = run_handler(handle, {}).emitted
    assert first == Emitted(
        "alerts",
        {"n": 1},
        type="alert.raised",
        headers={"tenant": "eu"},
        metadata={"why": ["x"]},
        partition_key="p",
        available_at=NOON,
    )
    assert first.event_id == number
    assert [one.payload for one in rest] == [b"7", {"a": 1}, b"{not json"]
    assert rest[0].content_type == "application/octet-stream"


def test_emitted_events_are_returned_in_order() -> None:
    def handle(event: Event, ctx: Context) -> None:
        for number in event.json():
            ctx.emit("numbers", number, type="n")

    assert [one.payload for one in run_handler(handle, [3, 1, 2]).emitted] == [3, 1, 2]


def test_emitted_events_are_compared_by_everything_but_their_id() -> None:
    one = Emitted("alerts", {"n": 1}, type="alert.raised", event_id=uuid.uuid4())
    assert one == Emitted("alerts", {"n": 1}, type="alert.raised")
    assert one != Emitted("alerts", {"n": 1}, type="alert.raised", ordering_key="a")
    assert one != Emitted("alerts", {"n": 2}, type="alert.raised")


def test_an_event_of_a_log_is_used_unchanged(tmp_path: Path) -> None:
    seen: list[Event] = []
    with penstock.open(f"sqlite:///{tmp_path}/log.db", clock=VirtualClock(NOON)) as log:
        log.create_group("orders", "fraud", retry=penstock.Retry(base_seconds=0))
        log.append("orders", {"id": 7}, type="order.created", ordering_key="a", headers={"tenant": "eu"})
        run_handler(seen.append, log.read("orders")[0])
        lease = log.claim("orders", "fraud", claimed_by="w-1")
        assert lease is not None
        lease.settle(dead={lease.events[0]: "no"})
        dead = log.delivery("orders", "fraud", lease.events[0].event_id)
        run_handler(seen.append, dead)
        log.redrive("orders", "fraud", all=True)
        lease = log.claim("orders", "fraud", claimed_by="w-1")
        assert lease is not None
        run_handler(seen.append, lease.events[0])
        wanted = lease.events[0].attempts
    for event in seen:
        assert (event.json(), event.stream, event.offset) == ({"id": 7}, "orders", dead.offset)
        assert (event.event_id, event.event_type, event.created_at) == (dead.event_id, "order.created", NOON)
        assert (event.ordering_key, event.headers) == ("a", {"tenant": "eu"})
    read, buried, leased = seen
    assert (read.attempts, read.last_error) == (1, None)
    assert (buried.attempts, buried.failures, buried.last_error) == (2, dead.failures, "no")
    assert leased.attempts == wanted


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"state": {"seen": 1}}, penstock.StateNeedsKey),
        ({"state": {"seen": {1}}, "ordering_key": "a"}, penstock.InvalidInput),
        ({"state": ["seen"], "ordering_key": "a"}, penstock.InvalidInput),
        ({"state": {"": 1}, "ordering_key": "a"}, penstock.InvalidInput),
        ({"type": "not a name"}, penstock.InvalidName),
        ({"stream": "not a name"}, penstock.InvalidName),
        ({"group": "not a name"}, penstock.InvalidName),
        ({"ordering_key": "x" * 513}, penstock.TooLarge),
        ({"event_id": "seven"}, penstock.InvalidInput),
        ({"headers": {"n": 1}}, penstock.InvalidInput),
        ({"created_at": datetime(2026, 1, 1)}, penstock.NaiveDatetime),
        ({"attempts": 0}, penstock.InvalidInput),
        ({"failures": -1}, penstock.InvalidInput),
        ({"timeout_seconds": 0}, penstock.InvalidInput),
    ],
    ids=str,
)
def test_event_fields_that_no_log_would_store_are_refused(
    options: dict[str, Any], error: type[penstock.PenstockError]
) -> None:
    called: list[Event] = []
    with pytest.raises(error):
        run_handler(called.append, {}, **options)
    assert called == []


def test_invalid_handlers_and_payloads_are_refused() -> None:
    with pytest.raises(penstock.InvalidHandler):
        run_handler(lambda: None, {})
    with pytest.raises(penstock.MissingField):
        run_handler(screen, None)


def test_an_event_keeps_its_own_fields(tmp_path: Path) -> None:
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.append("orders", {"id": 7}, type="order.created")
        with pytest.raises(penstock.InvalidInput, match="ordering_key"):
            run_handler(screen, log.read("orders")[0], ordering_key="a")


def test_state_without_a_key_fails_the_event_as_in_the_engine() -> None:
    handled = run_handler(screen, {"id": 7})
    assert handled.outcome == "failed"
    assert handled.error is not None and handled.error.code == "state_needs_key"


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), pytest.fail.Exception("the test is over")], ids=["ctrl-c", "fail"]
)
def test_exceptions_that_end_a_test_are_not_outcomes(error: BaseException) -> None:
    def handle(event: Event) -> None:
        raise error

    async def handle_async(event: Event) -> None:
        raise error

    for handler in (handle, handle_async):
        with pytest.raises(type(error)):
            run_handler(handler, {})


def test_a_policy_says_by_class_what_is_dead() -> None:
    def refuse(event: Any) -> None:
        raise KeyError("id")

    assert run_handler(refuse, {}).outcome == "failed"
    assert run_handler(refuse, {}, retry=penstock.Retry(dead_for=(LookupError,))).outcome == "dead"
