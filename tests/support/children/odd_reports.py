"""Handlers that use enums as text, or make it impossible to report their outcome."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, tzinfo
from enum import Enum, StrEnum

import penstock
from penstock import Context, Event
from tests.support.notes import write_note


class Kind(StrEnum):
    """An enum that the engine's process need not have."""

    STREAM = "seen"
    TYPE = "event.seen"
    NAME = "total"


class Mixed(str, Enum):  # noqa: UP042 - this is the kind that is meant
    """Its value differs from what `str` returns."""

    STREAM = "seen"
    TYPE = "event.seen"
    NAME = "total"


def enums(event: Event, ctx: Context) -> None:
    """Uses enum members for all text; one of the enums exists only in this process."""

    class Local(StrEnum):
        SQL = "insert into done (n, name) values (?, ?)"
        CODE = "sold_out"
        HEADER = "tenant"

    class SoldOutError(Exception):
        code = Local.CODE

    class Seconds(float):
        pass

    if event.failures == 0:
        raise SoldOutError("later") if event.offset % 2 else penstock.RetryLater(Seconds(0.001), "later")
    words = Kind if event.offset % 2 else Mixed
    ctx.state[words.NAME] = ctx.state.get("total", 0) + 1
    ctx.state.set(Local.CODE, 1, ttl_seconds=Seconds(60))
    ctx.emit(
        words.STREAM,
        {"offset": event.offset},
        type=words.TYPE,
        ordering_key=words.NAME,
        headers={Local.HEADER: words.NAME},
    )
    ctx.execute(Local.SQL, (event.offset, None))


class _Zone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def __reduce__(self) -> str:
        raise ValueError("this stays here")


def unreportable(event: Event, ctx: Context) -> None:
    """Some events succeed, but cannot be reported."""
    write_note(f"{event.offset} {event.attempts}")
    ctx.state["seen"] = [*ctx.state.get("seen", []), event.offset]
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, event.ordering_key))
    match event.json().get("do"):
        case "hang_up":
            os.closerange(3, 256)
        case "unsendable":
            ctx.execute("insert into done (n, name) values (1, ?)", (datetime(2026, 1, 1, tzinfo=_Zone()),))
