"""Handlers of the tests. They run in processes of their own, so they are defined where such a process finds them.

What they are to do stands in the event: `{"do": "raise"}`. What they have done they write into a file, one line a call.
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
    time.sleep(3600)  # our own end follows


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
    """Go wrong in one of many ways, or not."""
    if what is not None:
        ACTS[what]()


def plain(event: Event) -> None:
    write_note(f"{event.offset} {event.attempts}")
    act(event.json().get("do"))


def counting(event: Event, ctx: Context) -> None:
    """One of every effect, and then whatever the event says."""
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
    """Fails as often as the event says, and then succeeds."""
    how = event.json()
    if event.failures < how.get("times", 0):
        act(how.get("do", "raise"))
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))


def counting_in_chunks(event: Event, ctx: Context) -> None:
    """State on every event, SQL on some, a death on one; everything goes well the second time."""
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
    """The same with effects that no database refuses, which travel together."""
    write_note(f"{event.offset} {event.attempts}")
    ctx.state["seen"] = [*ctx.state.get("seen", []), event.offset]
    ctx.emit("seen", {"offset": event.offset}, type="event.seen")
    act(event.json()["script"].get(str(event.attempts)))


def scripted_plain(event: Event) -> None:
    """The script and nothing else."""
    write_note(f"{event.offset} {event.attempts}")
    time.sleep(0.001)
    act(event.json()["script"].get(str(event.attempts)))


def odd(event: Event, ctx: Context) -> None:
    """Asks for what cannot be stored, or not like this."""
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
    """A constraint that would speak at the commit only."""
    ctx.execute("insert into child (n, parent) values (?, ?)", (event.offset, event.json().get("parent", event.offset)))
    ctx.execute("insert into parent (n) values (?)", (event.offset,))


def returns_a_coroutine(event: Event) -> object:
    return slow_async(event)


class AsyncObject:
    async def __call__(self, event: Event) -> None:
        write_note(f"{event.offset} called")


async_object = AsyncObject()


def dies_late(event: Event) -> None:
    """All of them are in flight, and time is up, when one takes the process down."""
    if event.json().get("do"):
        time.sleep(0.4)
        os._exit(3)
    time.sleep(0.6)


_KEPT: list[bytearray] = []


def leaking(event: Event) -> None:
    """Nobody's fault in particular: each event keeps a little."""
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
    """Slow, so that many are in flight when one of them goes wrong."""
    write_note(f"{event.offset} begin")
    time.sleep(0.02)
    act(event.json().get("do"))


def unavailable(event: Event) -> None:
    """The target is down as long as a file says so."""
    write_note(f"{event.offset} {event.attempts}")
    if Path(os.environ["PENSTOCK_DOWN"]).exists():
        raise penstock.Unavailable("the bank is closed")


def keyed_by_id(event: Event, ctx: Context) -> None:
    write_note(f"{ctx.idempotency_key} {ctx.token}")


def mutating(event: Event, ctx: Context) -> None:
    """Changes a value it got without putting it back, and puts one back that it changes later."""
    ctx.state.get("list", []).append(event.offset)
    mine: list[Any] = [1]
    ctx.state["mine"] = mine
    mine.append(2)


def forgetting(event: Event, ctx: Context) -> None:
    ctx.state.set("short", 1, ttl_seconds=60)
    ctx.state.put("long", 1)


def seen(event: Event, ctx: Context) -> None:
    """Counts the events of a key that go well."""
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    act(event.json().get("do"))


def slow_counting(event: Event, ctx: Context) -> None:
    """One of every effect, taking its time."""
    time.sleep(event.json()["seconds"])
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))
