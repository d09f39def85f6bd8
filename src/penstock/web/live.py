"""Live updates: one look a second for all viewers, and a stream of server-sent events that says what has changed.

The stream carries names of topics and nothing else; pages then fetch what they show.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from penstock.log.changes import Newest
from penstock.log.log import Log

logger = logging.getLogger("penstock")
TOPICS: Final = (*Newest._fields, "beat")
_EVERY_SECONDS: Final = 1.0
_BEAT_SECONDS: Final = 5.0  # ages, rates and what has no number of its own are looked at again
LIFE_SECONDS: Final = 20.0  # of a stream; the browser asks again at once. So a server that stops need not wait long
_RETRY_MS: Final = 500


class Live:
    """Looks for changes as long as anybody listens; one look for all of them."""

    def __init__(self, log: Log, every_seconds: float = _EVERY_SECONDS) -> None:
        self._log = log
        self._every_seconds = every_seconds
        self._seen: Newest | None = None
        self._number = 0  # of the last change
        self._changed = dict.fromkeys(TOPICS, 0)  # the number of the last change of every topic
        self._beat_at = 0.0
        self._listeners: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.looks = 0  # at the database

    @property
    def number(self) -> int:
        """The number of the last change that was seen."""
        return self._number

    @property
    def listeners(self) -> int:
        """How many streams are open."""
        return len(self._listeners)

    def stop(self) -> None:
        """End all streams, and open no more. Safe in a signal handler and in any thread."""
        self._stopping = True
        for one in tuple(self._listeners):
            one.loop.call_soon_threadsafe(one.set)  # type: ignore[attr-defined]

    async def changes(self, after: int | None, seconds: float = LIFE_SECONDS) -> AsyncIterator[tuple[int, list[str]]]:
        """Yield the number of the newest change and the topics that have changed since the last one, for a while."""
        bell = _Bell()
        self._listeners.add(bell)
        try:
            if self._task is None:
                self._task = asyncio.create_task(self._look())
            until = time.monotonic() + seconds
            known = self._number if after is None or after > self._number else after
            yield known, []
            while not self._stopping and (left := until - time.monotonic()) > 0:
                topics = [name for name, number in self._changed.items() if number > known]
                if topics:
                    known = self._number
                    yield known, topics
                    continue
                bell.clear()
                try:
                    await asyncio.wait_for(bell.wait(), left)
                except TimeoutError:
                    break
        finally:
            self._listeners.discard(bell)

    async def _look(self) -> None:
        try:
            while self._listeners and not self._stopping:
                await self._once()
                await asyncio.sleep(self._every_seconds)
        finally:
            self._task = None

    async def _once(self) -> None:
        try:
            found = await run_in_threadpool(self._log.newest)
        except Exception as error:
            logger.debug("live: %s", error)
            return
        self.looks += 1
        topics = [] if self._seen is None else found.changed_since(self._seen)
        self._seen = found
        if time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + _BEAT_SECONDS
            topics.append("beat")
        if topics:
            self._number += 1
            self._changed.update(dict.fromkeys(topics, self._number))
            for one in self._listeners:
                one.set()


class _Bell(asyncio.Event):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()


def stream(
    live: Live,
    request: Request,
    still_allowed: Callable[[], Awaitable[bool]] | None = None,
    seconds: float = LIFE_SECONDS,
) -> StreamingResponse:
    """Answer with server-sent events: `data` is the names of topics. It ends after a while, and when rights end."""
    sent = request.headers.get("last-event-id") or request.query_params.get("after", "")
    after = int(sent) if sent.isascii() and sent.isdecimal() and len(sent) < 16 else None

    async def events() -> AsyncIterator[str]:
        yield f"retry: {_RETRY_MS}\n\n"
        async for number, topics in live.changes(after, seconds):
            if topics and still_allowed is not None and not await still_allowed():
                return
            yield f"id: {number}\ndata: {' '.join(topics)}\n\n"

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events(), headers=headers, media_type="text/event-stream")
