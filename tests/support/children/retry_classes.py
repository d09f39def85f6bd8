"""Handlers and jobs that raise exceptions of many classes: the payload names one."""

from __future__ import annotations

from typing import Any

import penstock
from penstock import Event


class Sneaky(type):
    """A metaclass that claims every class, and lets nobody ask."""

    def __subclasscheck__(cls, other: type) -> bool:
        raise RuntimeError("asked")


class Bad(ValueError):
    pass


class Odd(Exception, metaclass=Sneaky):
    pass


class Later(penstock.RetryLater):
    def __init__(self) -> None:
        super().__init__(0)


CLASSES: dict[str, Any] = {
    "bad": Bad,
    "odd": Odd,
    "value": ValueError,
    "key": KeyError,
    "down": ConnectionResetError,
    "exit": SystemExit,
    "permanent": penstock.Permanent,
    "later": Later,
}


def call(payload: dict[str, Any]) -> None:
    if payload["raise"] is not None:
        raise CLASSES[payload["raise"]]()


def handle(event: Event) -> None:
    call(event.json())


async def handle_async(event: Event) -> None:
    call(event.json())


def handle_many(events: list[Event]) -> Any:
    """Return one error for each event."""
    return {one.event_id: CLASSES[name]() for one in events if (name := one.json()["raise"]) is not None}


async def call_async(payload: dict[str, Any]) -> None:
    call(payload)
