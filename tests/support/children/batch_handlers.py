"""Batch handlers. The payload says what to do with an event; the notes say what they were called with."""

from __future__ import annotations

import asyncio
from typing import Any

import penstock
from penstock import Event
from penstock.engine.handlers.batch import BatchContext
from tests.support.children.handlers import act
from tests.support.notes import write_note

INSERT = "insert into done(n, name) values (?, ?)"


def _noted(events: list[Event]) -> None:
    write_note(" ".join(f"{event.offset}:{event.attempts}" for event in events))


def _answer(events: list[Event]) -> dict[Any, Any] | None:
    errors: dict[Any, Any] = {}
    for event in events:
        said = event.json()
        match said.get("do"):
            case "text":
                errors[str(event.event_id)] = "no such customer"
            case "error":
                errors[event.event_id] = ValueError("bad amount")
            case "dead":
                errors[event] = penstock.Permanent("for ever")
            case "later":
                errors[event.event_id] = penstock.RetryLater(0, "come back")
            case "fine":
                errors[event.event_id] = None
            case "down_once" if event.attempts == 1:
                errors[event.event_id] = penstock.Unavailable("the bank is closed")
            case "raise_once" if event.failures == 0:
                raise ValueError("not yet")
            case "raise" | "permanent" | "exit" | "hang" as what:
                act(what)
            case "odd":
                return {event.event_id: 7}
            case "stranger":
                return {penstock.event_id("somebody else"): "no"}
            case _:
                pass
    return errors or None


def plain(events: list[Event]) -> dict[Any, Any] | None:
    _noted(events)
    return _answer(events)


def with_effects(events: list[Event], ctx: BatchContext) -> dict[Any, Any] | None:
    """Asks for all effects before it decides about the event."""
    _noted(events)
    for event in events:
        one = ctx.of(event)
        one.execute(INSERT, (event.json()["n"], event.ordering_key or ""))
        one.emit("out", {"n": event.json()["n"]}, type="t")
        if event.ordering_key is not None:
            one.state["seen"] = [*one.state.get("seen", []), event.json()["n"]]
    return _answer(events)


async def coroutine(events: list[Event]) -> dict[Any, Any] | None:
    _noted(events)
    await asyncio.sleep(0)
    return _answer(events)


def first(events: list[Event]) -> None:
    write_note("first " + " ".join(event.event_type for event in events))


def rest(events: list[Event]) -> None:
    write_note("rest " + " ".join(event.event_type for event in events))


def always_a_list(events: list[Event]) -> list[Event]:
    _noted(events)
    return events


def stranger_asks(events: list[Event], ctx: BatchContext) -> None:
    ctx.of("nobody")  # type: ignore[arg-type]
