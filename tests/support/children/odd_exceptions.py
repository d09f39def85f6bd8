"""Exceptions of odd classes, and of a common one (the last)."""

from __future__ import annotations

from typing import Any

import penstock
from penstock import Event


class Hostile(str):
    """A string that cannot be hashed or compared."""

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


def refusing(name: str) -> type[Exception]:
    """A class whose instances raise when this attribute is read."""

    def refuse(self: object) -> None:
        raise RuntimeError(name)

    return type("Refusing", (Exception,), {name: property(refuse)})


class WithoutName(Exception, metaclass=Nameless):
    pass


class OddModule(Exception):
    __module__ = Hostile("odd")


class NoTraceback(Exception):
    __traceback__ = 5  # type: ignore[assignment]


class Silent(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Soon(penstock.RetryLater):
    def __init__(self) -> None:
        Exception.__init__(self, "soon")
        self.after_seconds = "soon"  # type: ignore[assignment]


class Busy(penstock.RetryLater):
    """Does not call the __init__ of its parent."""

    def __init__(self) -> None:
        Exception.__init__(self, "busy")


ALL: list[type[Exception]] = [
    *map(refusing, ("__traceback__", "__class__", "__cause__", "__context__", "__suppress_context__", "code", "args")),
    *(WithoutName, OddModule, NoTraceback, Silent, Soon, Busy),
]


def handle(event: Event) -> None:
    if (which := event.json()["which"]) is not None:
        raise ALL[which]()
