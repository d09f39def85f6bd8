"""An event loop in a thread of its own, for clients that are async."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A loop that runs until `stop`. Coroutines come from any thread, which waits for them."""

    def __init__(self, name: str) -> None:
        self._loop = _new_loop()
        self._lock = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"penstock-{name}", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return what it returns; `ConnectionError` if the loop stops meanwhile."""
        with self._lock:
            if not self._open:
                work.close()
                raise ConnectionAbortedError("The publisher was closed.")
            running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise ConnectionAbortedError("The publisher was closed.") from None

    def stop(self) -> None:
        """Cancel what still runs, and end the loop and its thread."""
        with self._lock:
            self._open = False
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return the fastest loop that is installed: what is sent is the same."""
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
