"""What surrounds the calls of handlers in this process: nothing, unless traces are on.

It is entered once per thread and part of a lease, not once per event: whoever is asked for the current trace inside a
handler looks up the event at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from penstock.core.batch import Event

Current = Callable[[], Event | None]  # the event that is being handled
Surround = Callable[[Current], AbstractContextManager[None]]
_NOTHING: Final = nullcontext()
_installed: list[Surround] = []


def install(surround: Surround | None) -> None:
    """Surround the calls of handlers with this from now on; None ends it."""
    _installed[:] = [] if surround is None else [surround]


def handling(current: Current) -> AbstractContextManager[None]:
    """Return what to enter while handlers are called."""
    return _installed[0](current) if _installed else _NOTHING
