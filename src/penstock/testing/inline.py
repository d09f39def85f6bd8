"""Run handlers in the calling thread through the engine's own code, and keep the exceptions they raise."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import wraps
from typing import Any

from penstock.declare.subscription import Function, Handler, Subscription
from penstock.engine.handlers.life import SharedLife
from penstock.engine.handlers.middleware import surrounded
from penstock.engine.isolation.inline import Inline
from penstock.engine.work import Work
from penstock.errors import InvalidInput


class InlineHandlers:
    """The handlers of one group, run in the calling thread one event at a time, whatever isolation they declare."""

    def __init__(self, subscription: Subscription) -> None:
        self._raised: list[BaseException] = []
        self._escaped: BaseException | None = None
        self._is_async = any(handler.is_async for handler in subscription.handlers)
        # One at a time, so that the order is the same in every run of a test.
        self._life = SharedLife(subscription.around)
        whole = surrounded(subscription)
        policy = replace(whole.policy, isolation="inline", concurrency=1)
        handlers = [self._listening(handler) for handler in whole.handlers]
        self._executor = Inline(replace(whole, policy=policy, handlers=handlers))
        self.marks = self._executor.marks

    def start(self) -> None:
        """Call `on_start`."""
        self._life.start()

    def run(self, work: Work) -> list[BaseException]:
        """Run all events; returns the exceptions that handlers raised, of which the engine keeps only the text."""
        if self._is_async and _loop_is_running():
            raise InvalidInput(
                "An async handler needs its own event loop, and this thread is already running one: "
                "await asyncio.to_thread(…) around this call."
            )
        self._raised, self._escaped = [], None
        self._executor.run(work)
        if self._escaped is not None:
            raise self._escaped
        return self._raised

    def close(self) -> None:
        """Close the event loop, and call `on_stop`."""
        self._life.stop()
        if not self._is_async or not _loop_is_running():
            self._executor.stop()
            return
        with ThreadPoolExecutor(1) as elsewhere:  # a loop cannot be closed in a thread that runs another one
            elsewhere.submit(self._executor.stop).result()

    def _listening(self, handler: Handler) -> Handler:
        function = handler.function
        return replace(handler, function=self._async(function) if handler.is_async else self._plain(function))

    def _plain(self, function: Function) -> Function:
        @wraps(function)
        def call(*given: Any) -> Any:
            self._go_on()
            try:
                return function(*given)
            except BaseException as error:
                self._heard(error)
                raise

        return call

    def _async(self, function: Function) -> Function:
        @wraps(function)
        async def call(*given: Any) -> Any:
            self._go_on()
            try:
                return await function(*given)
            except BaseException as error:
                self._heard(error)
                raise

        return call

    def _heard(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            return  # the handler timed out, and the engine reports that
        if isinstance(error, Exception | SystemExit):
            self._raised.append(error)
        else:
            # Ctrl-C, or a test framework that ends the test: the engine would treat it as the outcome of the event.
            self._escaped = error

    def _go_on(self) -> None:
        if self._escaped is not None:
            raise self._escaped


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
