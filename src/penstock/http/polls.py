"""Long polls: requests that wait until there is something to claim, all watched over by one look-out.

Those that wait for the same thing stand in line. Only the first is woken; when it has claimed something, or has gone,
it wakes the next one, until one finds nothing. So what comes is given out in the order of their arrival, nothing is
claimed for nobody, and a hundred polls that wait ask the database no more often than one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from penstock.core.lease import Idle
from penstock.engine.lookout import LookOut, Waiter
from penstock.log.log import Log

T = TypeVar("T")
WAIT_SECONDS: Final = 20.0  # at most: proxies give up on what is silent for longer
_GONE_SECONDS: Final = 1.0  # between two looks whether the client is still there
_AGAIN_SECONDS: Final = 1.0  # between two claims: what others fail or release is not seen by the look-out …
_AGAIN_PER_SECOND: Final = 50  # … but so many claims a second are enough for all lines
_LOOK_SECONDS: Final = (0.02, 0.25)  # between two looks at what no look-out sees: first and longest


class _Rung(threading.Event):
    """Set by the look-out's thread, waited for in the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.rung = asyncio.Event()

    def set(self) -> None:
        super().set()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.rung.set)


class Polls:
    """The requests of one service that wait."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lookout: LookOut | None = None
        self._waiting: set[_Rung] = set()
        self._lines: dict[Hashable, list[_Rung]] = {}
        self._stopping = False
        self.open = 0  # requests that claim, or wait to claim again

    def stop(self) -> None:
        """Answer all that wait now, and let nobody wait from now on. Safe in a signal handler and in any thread."""
        self._stopping = True
        for one in [*self._waiting]:
            one.set()

    async def close(self) -> None:
        """Stop, and end the look-out."""
        self.stop()
        if self._lookout is not None:
            await run_in_threadpool(self._lookout.stop)

    async def claimed(
        self, request: Request, seconds: float, claim: Callable[[], T | Idle], line: Hashable
    ) -> T | Idle:
        """Claim until something was found, the time is up, or the client has gone: nobody would work on it.

        `line` names what is waited for: where one poll of a line finds nothing, the others would not either.
        """
        until = time.monotonic() + min(seconds, WAIT_SECONDS)
        rung = _Rung()
        waiter = Waiter(woken=rung)
        self.open += 1
        try:
            while True:
                found = await run_in_threadpool(claim)
                if not isinstance(found, Idle) or until <= time.monotonic():
                    return found
                standing = self._lines.setdefault(line, [])
                if rung not in standing:
                    standing.append(rung)
                if not await self._woken(request, waiter, rung, found, until, standing):
                    return found
        finally:
            self.open -= 1
            self._leave(line, rung)

    def _leave(self, line: Hashable, rung: _Rung) -> None:
        """Leave a line; who is the first now looks for itself, and is watched for from then on."""
        standing = self._lines.get(line, [])
        if rung not in standing:
            return
        was_first = standing[0] is rung
        standing.remove(rung)
        if not standing:
            del self._lines[line]
        elif was_first:
            standing[0].set()

    async def _woken(
        self, request: Request, waiter: Waiter, rung: _Rung, idle: Idle, until: float, standing: list[_Rung]
    ) -> bool:
        """Wait until a claim may find something; False if it is not worth another one."""
        lookout = self._watching()
        if standing[0] is rung:
            again = max(_AGAIN_SECONDS, len(self._lines) / _AGAIN_PER_SECOND)
            seconds = again if idle.seconds is None else min(again, idle.seconds)
            lookout.watch_for(waiter, replace(idle, seconds=seconds))
        self._waiting.add(rung)
        try:
            while (left := until - time.monotonic()) > 0 and not self._stopping:
                with suppress(TimeoutError):
                    await asyncio.wait_for(rung.rung.wait(), min(left, _GONE_SECONDS))
                if await request.is_disconnected():
                    return False
                if rung.rung.is_set() and not self._stopping:
                    return True
            return False
        finally:
            self._waiting.discard(rung)
            lookout.forget(waiter)
            rung.rung.clear()

    def _watching(self) -> LookOut:
        if self._lookout is None:
            self._lookout = LookOut(self._log)
            self._lookout.start()
        return self._lookout

    async def until(self, request: Request, seconds: float, look: Callable[[], T], done: Callable[[T], bool]) -> T:
        """Look until it is done, the time is up, or the client has gone."""
        until = time.monotonic() + min(seconds, WAIT_SECONDS)
        pause, longest = _LOOK_SECONDS
        while True:
            found = await run_in_threadpool(look)
            left = until - time.monotonic()
            if done(found) or left <= 0 or self._stopping or await request.is_disconnected():
                return found
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, longest)
