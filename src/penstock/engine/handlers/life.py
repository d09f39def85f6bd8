"""An app's `on_start` and `on_stop` in a process in which its handlers or jobs run: once each, whoever shares it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.core import codec
from penstock.core.log_fields import about
from penstock.declare.around import Around, Hook
from penstock.errors import StartFailed

InLoop = Callable[[Coroutine[Any, Any, Any]], Any]  # runs a coroutine to its end
logger = logging.getLogger("penstock")


class Life:
    """The hooks of one process. `in_loop` runs the async ones, where the process has a loop for its handlers."""

    def __init__(self, around: Around, in_loop: InLoop | None = None) -> None:
        self._around = around
        self._in_loop = in_loop
        self._own: asyncio.Runner | None = None

    def start(self) -> None:
        """Call `on_start`; `StartFailed` if one of them raises, and then no `on_stop` is called."""
        for hook in self._around.on_start:
            try:
                self._call(hook)
            except BaseException as error:  # SystemExit, too
                self._close()
                raise StartFailed(
                    f"on_start: {hook.name} raised {codec.error_code(error)}: {codec.error_text(error)}."
                ) from error

    def stop(self) -> None:
        """Call `on_stop`, the last declared first; one that raises is logged, and the others are called."""
        for hook in reversed(self._around.on_stop):
            try:
                self._call(hook)
            except BaseException as error:
                words = ("on_stop: %s raised %s: %s", hook.name, type(error).__name__, codec.error_text(error))
                logger.warning(*words, extra=about("on_stop_failed", code=codec.error_code(error)))
        self._close()

    def _call(self, hook: Hook) -> None:
        if not hook.is_async:
            hook.function()
            return
        if self._in_loop is not None:
            self._in_loop(hook.function())
            return
        self._own = self._own or asyncio.Runner()
        self._own.run(hook.function())

    def _close(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None


class SharedLife:
    """The hooks of a process in which several groups of an app run: the first starts it, the last ends it."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._key: tuple[int, int] | None = None

    def start(self) -> None:
        """Begin to use it; again does nothing."""
        if self._key is not None:
            return
        key = os.getpid(), id(self._around)  # a fork is another process
        with _sharing:
            if key not in _shared:
                life = Life(self._around)
                life.start()
                _shared[key] = _Used(life)
            _shared[key].users += 1
        self._key = key

    def stop(self) -> None:
        """Use it no more."""
        key, self._key = self._key, None
        if key is None:
            return
        with _sharing:
            used = _shared[key]
            used.users -= 1
            if not used.users:
                del _shared[key]
                used.life.stop()


@dataclass(slots=True)
class _Used:
    life: Life
    users: int = 0


_sharing = threading.Lock()
_shared: dict[tuple[int, int], _Used] = {}  # by process and hooks
