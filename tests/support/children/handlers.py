"""Handlers. They run in child processes, so they are in a module that a child can import.

The payload says what to do: `{"do": "raise"}`. Most handlers write one note per call.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import penstock
from penstock import Context, Event
from tests.support.notes import write_note


def _raise(error: BaseException) -> None:
    raise error


def _hoard() -> None:
    hoard: list[bytearray] = []
    while True:
        hoard.append(bytearray(16 * 2**20))


def _kill_the_engine() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)  # our own process is ended next


ACTS: dict[str, Callable[[], object]] = {
    "raise": lambda: _raise(ValueError("bad amount")),
    "permanent": lambda: _raise(penstock.Permanent("no such customer")),
    "later": lambda: _raise(penstock.RetryLater(0, "come back")),
    "system_exit": lambda: sys.exit(4),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "hang": lambda: time.sleep(3600),
    "exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "memory": _hoard,
    "kill_engine": _kill_the_engine,
}


def act(what: str | None) -> None:
    """Fail in one of many ways, or not."""
    if what is not None:
        ACTS[what]()


def plain(event: Event) -> None:
    write_note(f"{event.offset} {event.attempts}")
    act(event.json().get("do"))


def counting(event: Event, ctx: Context) -> None:
    """One of every effect, then whatever the event says."""
    write_note(f"{event.offset} {event.attempts}")
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    ctx.state.set("last", {"offset": event.offset})
    ctx.emit("seen", {"offset": event.offset, "seen": ctx.state["seen"]}, type="event.seen")
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))
    do = event.json().get("do")
    if do == "bad_sql":
        ctx.execute("insert into nowhere (n) values (?)", (event.offset,))
    elif do == "rows":
        ctx.execute("select 1")
    elif do == "taken_id":
        ctx.emit("seen", {"other": event.offset}, type="event.seen", event_id=penstock.event_id("taken"))
    else:
        act(do)


def sometimes(event: Event, ctx: Context) -> None:
    """Fails as often as the event says, then succeeds."""
    how = event.json()
    if event.failures < how.get("times", 0):
        act(how.get("do", "raise"))
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))


def counting_in_chunks(event: Event, ctx: Context) -> None:
    """State for every event, SQL for some, a death or an error for others; the second attempt succeeds."""
    how = event.json()
    if how.get("do") == "exit" and event.failures == 0:
        os._exit(3)
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    if how.get("do") == "sql":
        ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, None))
    if how.get("do") == "bad_sql" and event.failures == 0:
        ctx.execute("insert into nowhere (n) values (1)")


def scripted(event: Event, ctx: Context) -> None:
    """One of every effect, and what the event's script says about this attempt."""
    write_note(f"{event.offset} {event.attempts}")
    ctx.state["seen"] = [*ctx.state.get("seen", []), event.offset]
    ctx.emit("seen", {"offset": event.offset}, type="event.seen")
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))
    act(event.json()["script"].get(str(event.attempts)))


def scripted_state(event: Event, ctx: Context) -> None:
    """The same without SQL: these effects are settled together."""
    write_note(f"{event.offset} {event.attempts}")
    ctx.state["seen"] = [*ctx.state.get("seen", []), event.offset]
    ctx.emit("seen", {"offset": event.offset}, type="event.seen")
    act(event.json()["script"].get(str(event.attempts)))


def scripted_plain(event: Event) -> None:
    """The script, without effects."""
    write_note(f"{event.offset} {event.attempts}")
    time.sleep(0.001)
    act(event.json()["script"].get(str(event.attempts)))


def odd(event: Event, ctx: Context) -> None:
    """Asks for effects that cannot be stored."""
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    match event.json().get("do"):
        case "big_state":
            ctx.state["n"] = 2**70
        case "surrogate_state":
            ctx.state["n"] = "\ud800"
        case "big_parameter":
            ctx.execute("insert into done (n, name) values (?, ?)", (2**70, None))
        case "surrogate_parameter":
            ctx.execute("insert into done (n, name) values (?, ?)", (1, "\ud800"))
        case "function_parameter":
            ctx.execute("insert into done (n, name) values (?, ?)", (1, lambda: 1))
        case "later_delta":
            raise penstock.RetryLater(timedelta(seconds=1))  # type: ignore[arg-type]
        case "later_never":
            raise penstock.RetryLater(float("inf"))
        case "or_rollback":
            ctx.execute("insert or rollback into done (n, name) values (null, null)")
        case "two_statements":
            ctx.execute("insert into done (n, name) values (1, null); commit")
        case "text_parameters":
            ctx.execute("insert into done (n, name) values (?, ?)", "ab")


def deferred(event: Event, ctx: Context) -> None:
    """Violates a deferred constraint, which is checked at the commit."""
    ctx.execute("insert into child (n, parent) values (?, ?)", (event.offset, event.json().get("parent", event.offset)))
    ctx.execute("insert into parent (n) values (?)", (event.offset,))


def returns_a_coroutine(event: Event) -> object:
    return slow_async(event)


class AsyncObject:
    async def __call__(self, event: Event) -> None:
        write_note(f"{event.offset} called")


async_object = AsyncObject()


def dies_late(event: Event) -> None:
    """One event ends the process while all are in flight and the time limit has passed."""
    if event.json().get("do"):
        time.sleep(0.4)
        os._exit(3)
    time.sleep(0.6)


_KEPT: list[bytearray] = []


def leaking(event: Event) -> None:
    """Every event leaks a little memory."""
    _KEPT.append(bytearray(2**20))


def slow(event: Event) -> None:
    write_note(f"{event.offset} begin")
    time.sleep(event.json().get("seconds", 0.02))
    write_note(f"{event.offset} end")


async def slow_async(event: Event) -> None:
    write_note(f"{event.offset} begin")
    await asyncio.sleep(event.json().get("seconds", 0.02))
    if event.json().get("do"):
        act(event.json()["do"])
    write_note(f"{event.offset} end")


def slow_or_worse(event: Event) -> None:
    """Slow, so that many are in flight when one of them fails."""
    write_note(f"{event.offset} begin")
    time.sleep(0.02)
    act(event.json().get("do"))


def unavailable(event: Event) -> None:
    """The target is unavailable as long as the file $PENSTOCK_DOWN exists."""
    write_note(f"{event.offset} {event.attempts}")
    if Path(os.environ["PENSTOCK_DOWN"]).exists():
        raise penstock.Unavailable("the bank is closed")


def keyed_by_id(event: Event, ctx: Context) -> None:
    write_note(f"{ctx.idempotency_key} {ctx.token}")


def mutating(event: Event, ctx: Context) -> None:
    """Changes a value read from state without storing it, and changes a value after storing it."""
    ctx.state.get("list", []).append(event.offset)
    mine: list[Any] = [1]
    ctx.state["mine"] = mine
    mine.append(2)


def forgetting(event: Event, ctx: Context) -> None:
    ctx.state.set("short", 1, ttl_seconds=60)
    ctx.state.put("long", 1)


def seen(event: Event, ctx: Context) -> None:
    """Counts the successful events of a key."""
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    act(event.json().get("do"))


def slow_counting(event: Event, ctx: Context) -> None:
    """State and SQL, slowly."""
    time.sleep(event.json()["seconds"])
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))
