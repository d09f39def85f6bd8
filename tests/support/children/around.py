"""Middleware and hooks, and the handlers and jobs that they are around. The payload says what each of them does."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock import Event
from tests.support.children.handlers import act
from tests.support.notes import write_note


def of(event: Any) -> Any:
    """What the payload says; a batch call does what its first event says."""
    return (event[0] if isinstance(event, list) else event).json()


def outer(call: Callable[[], Any], event: Any, ctx: Any) -> Any:
    """Note when it begins and ends, and how."""
    write_note(f"outer {os.getpid()}")
    try:
        answer = call()
    except BaseException as error:
        write_note(f"raised {type(error).__name__}")
        raise
    write_note(f"returned {answer}")
    return answer


def inner(call: Callable[[], Any], event: Any, ctx: Any) -> Any:  # noqa: PLR0912 - one case for each misuse
    """Do what the payload says with its call."""
    match of(event).get("around"):
        case "swallow":
            try:
                call()
            except Exception:
                write_note("swallowed")
        case "twice":
            call()
            try:
                call()
            except penstock.InvalidHook:
                write_note("refused")
        case "never":
            write_note("never")
        case "raise":
            raise KeyError("in the middleware")
        case "after":
            call()
            raise penstock.Permanent("after the call")
        case "replace":
            call()
            return {"instead": 1}
        case "thread":
            threading.Thread(target=call, daemon=True).start()
            while not running.is_set():
                pass
        case "slow":
            call()
            act("hang")
        case "coroutine":
            return asyncio.sleep(0)
        case _:
            call()
    return None


async def inner_async(call: Callable[[], Any], event: Any, ctx: Any) -> Any:
    """The same, async."""
    match of(event).get("around"):
        case "swallow":
            try:
                await call()
            except Exception:
                write_note("swallowed")
        case "twice":
            await call()
            try:
                await call()
            except penstock.InvalidHook:
                write_note("refused")
        case "never":
            write_note("never")
        case "raise":
            raise KeyError("in the middleware")
        case "replace":
            await call()
            return {"instead": 1}
        case "forget":
            call()
        case "wait":
            await asyncio.sleep(0)
            await call()
        case "slow":
            await call()
            await asyncio.sleep(3600)
        case _:
            await call()
    return None


def effects(call: Callable[[], Any], event: Event, ctx: Any) -> None:
    """An effect of every kind, before and after the call."""
    ctx.state["around"] = ctx.state.get("around", 0) + 1
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, "around"))
    call()
    ctx.emit("seen", {"offset": event.offset}, type="event.seen")


def many_effects(call: Callable[[], Any], events: list[Event], ctx: Any) -> None:
    call()
    for event in events:
        ctx.of(event).emit("seen", {"offset": event.offset}, type="event.seen")


running = threading.Event()


def handle(event: Event) -> None:
    write_note(f"handle {event.offset}")
    running.set()
    if event.json().get("around") == "thread":
        act("hang")
    act(event.json().get("do"))


async def handle_async(event: Event) -> None:
    write_note(f"handle {event.offset}")
    act(event.json().get("do"))


def handle_many(events: list[Event]) -> Any:
    write_note(f"handle {len(events)}")
    return {event.event_id: "no" for event in events if event.json().get("do") == "text"}


def keyed(event: Event, ctx: Any) -> None:
    write_note(f"handle {event.offset}")
    act(event.json().get("do"))


def job(payload: dict[str, Any]) -> int:
    write_note(f"job {os.getpid()}")
    act(payload.get("do"))
    return 7


async def job_async(payload: dict[str, Any]) -> int:
    return job(payload)


def emitting(call: Callable[[], Any], event: Event, ctx: Any) -> None:
    call()
    ctx.emit("seen", {"offset": event.offset}, type="event.seen")


# --- hooks ------------------------------------------------------------------------------------------------------------

loops: list[Any] = []


def start() -> None:
    write_note(f"start {os.getpid()}")


def start_again() -> None:
    write_note(f"again {os.getpid()}")


def stop() -> None:
    write_note(f"stop {os.getpid()}")


def stop_badly() -> None:
    write_note(f"badly {os.getpid()}")
    raise RuntimeError("cannot close")


async def start_async() -> None:
    loops.append(asyncio.get_running_loop())
    write_note(f"start {os.getpid()}")


async def stop_async() -> None:
    write_note(f"stop {os.getpid()} {loops[0] is asyncio.get_running_loop()}")


def refuse() -> None:
    write_note(f"refuse {os.getpid()}")
    raise ConnectionError("the pool cannot be opened")


def refuse_again() -> None:
    """Start as long as nothing is down; whoever reads the note may take it down: this start does not see that."""
    down = Path(os.environ["PENSTOCK_DOWN"]).exists()
    write_note(f"start {os.getpid()}")
    if down:
        raise ConnectionError("the pool cannot be opened")


def wait_at_gate() -> None:
    """Wait in the third process, which is the one for a job that killed the first."""
    write_note(f"start {os.getpid()}")
    if sum(line.startswith("start") for line in Path(os.environ["PENSTOCK_NOTES"]).read_text().splitlines()) == 3:
        write_note("waits")
        open(os.environ["PENSTOCK_GATE"]).close()


async def in_the_loop(event: Event) -> None:
    write_note(f"handle {loops[0] is asyncio.get_running_loop()}")


async def job_in_the_loop(payload: Any) -> None:
    write_note(f"job {loops[0] is asyncio.get_running_loop()}")
