"""Functions of jobs. They run in child processes, so they are in a module that a child can import."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import penstock
from tests.support.children.handlers import act
from tests.support.notes import write_note


class Email(BaseModel):
    to: str
    copies: int = 1


def plain(payload: dict[str, Any]) -> None:
    """Do what the payload says, and note it."""
    write_note(f"{payload.get('n', 0)} {os.getpid()}")
    act(payload.get("do"))


def once(payload: dict[str, Any], ctx: Any) -> None:
    """Misbehave at the first attempt only."""
    write_note(f"{payload.get('n', 0)} {ctx.job.attempts}")
    if ctx.job.attempts == 1:
        act(payload.get("do"))


def answer(payload: dict[str, Any], ctx: Any) -> Any:
    """Return a result, with an effect of every kind."""
    ctx.emit("done", {"n": payload["n"]}, type="job.done")
    ctx.execute("insert into done (n, name) values (?, ?)", (payload["n"], "job"))
    act(payload.get("do"))
    return {"twice": 2 * payload["n"]} if payload["n"] else None


def send(email: Email) -> int:
    """Take a model."""
    write_note(f"{email.to} {email.copies}")
    return email.copies


_at_once = 0
_lock = threading.Lock()


def wait(payload: dict[str, Any]) -> None:
    """Wait, and note how many wait at the same time."""
    global _at_once  # noqa: PLW0603  # threads of one process share it
    with _lock:
        _at_once += 1
        write_note(f"{payload.get('n', 0)} {_at_once} {os.getpid()}")
    time.sleep(payload.get("seconds", 0.01))
    with _lock:
        _at_once -= 1


async def wait_async(payload: dict[str, Any]) -> float:
    """The same in an event loop."""
    global _at_once  # noqa: PLW0603
    _at_once += 1
    write_note(f"{payload.get('n', 0)} {_at_once}")
    try:
        await asyncio.sleep(payload.get("seconds", 0.01))
    finally:
        _at_once -= 1
    return float(payload.get("seconds", 0.01))


def gated(payload: dict[str, Any]) -> None:
    """Wait at a gate, if the payload names one."""
    write_note(f"{payload.get('n', 0)} began")
    if payload.get("gate"):
        open(payload["gate"]).close()  # opens when the test opens its other end
    write_note(f"{payload.get('n', 0)} ended")


def patient(payload: dict[str, Any], ctx: Any) -> str:
    """Run until told to end."""
    ctx.progress(0.5, "half way")
    write_note("began")
    while not ctx.cancelled:
        time.sleep(0.01)
    write_note("told")
    if payload.get("raise"):
        raise RuntimeError("ended early")
    return "ended in time"


def stateful(payload: Any, ctx: Any) -> None:
    """Jobs have no state."""
    ctx.state["n"] = 1


def unavailable(payload: Any) -> None:
    """The target is down as long as a file is there."""
    write_note("called")
    if Path(os.environ["PENSTOCK_DOWN"]).exists():
        raise penstock.Unavailable("the bank is closed")


def nightly(ctx: Any) -> None:
    """What a schedule calls."""
    write_note(f"nightly {ctx.job.attempts}")


class _Hostile(dict[str, Any]):
    """A result that cannot be looked at."""

    def values(self) -> Any:
        raise KeyboardInterrupt


ODD_TEXTS = ["a\0b", "a\ud800b", "ö" * 50_000, "fine"]


def odd(payload: dict[str, Any], ctx: Any) -> Any:
    """Say and return what no database takes, and note in which thread."""
    ctx.progress(0.5, ODD_TEXTS[payload["n"] % len(ODD_TEXTS)])
    write_note(f"{payload.get('n', 0)} {threading.current_thread() is threading.main_thread()}")
    return _Hostile(a=None) if payload.get("hostile") else None


def long_once(payload: dict[str, Any], ctx: Any) -> None:
    """Run until told to end, if the payload names a file that is not there yet."""
    mark = Path(payload["mark"]) if payload.get("mark") else None
    if mark is None or mark.exists():
        write_note(f"{payload['n']} ended")
        return
    mark.touch()
    write_note(f"{payload['n']} began")
    while not ctx.cancelled:
        time.sleep(0.01)
    write_note(f"{payload['n']} told")
