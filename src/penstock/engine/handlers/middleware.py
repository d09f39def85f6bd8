"""Call a function with an app's middleware around it: the first declared is outermost."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from penstock.declare.around import Around, Hook
from penstock.declare.subscription import Handler, Subscription
from penstock.errors import InvalidHook


def surrounded(subscription: Subscription) -> Subscription:
    """Return a subscription whose handlers have the middleware around them; the same one if there is none.

    Whether its group is keyed does not depend on middleware.
    """
    middleware = subscription.around.middleware
    if not middleware:
        return subscription
    return replace(
        subscription,
        policy=replace(subscription.policy, keyed=subscription.keyed),
        handlers=[_surrounded(one, middleware) for one in subscription.handlers],
        around=Around([], subscription.around.on_start, subscription.around.on_stop),
    )


def _surrounded(handler: Handler, middleware: Sequence[Hook]) -> Handler:
    function, wants_context = handler.function, handler.wants_context

    def call(event: Any, ctx: Any) -> Any:
        return run(middleware, lambda: function(event, ctx) if wants_context else function(event), event, ctx)

    async def call_async(event: Any, ctx: Any) -> Any:
        def inner() -> Any:
            return function(event, ctx) if wants_context else function(event)

        return await run_async(middleware, inner, event, ctx)

    return replace(handler, function=call_async if handler.is_async else call, wants_context=True)


def run(middleware: Sequence[Hook], inner: Callable[[], Any], event: Any, ctx: Any) -> Any:
    """Run a plain function with middleware around it; return what the outermost returns, or what is inside returned."""
    if not middleware:
        return inner()
    one, *rest = middleware

    def inside() -> Any:
        return run(rest, inner, event, ctx)

    call = _AsyncCall(one, inside, awaits=False) if one.is_async else _Call(one, inside)
    try:
        answer = one.function(call, event, ctx)
        if one.is_async:
            answer = _without_loop(one, answer)
    finally:
        call.close()
    return call.end(answer)


async def run_async(middleware: Sequence[Hook], inner: Callable[[], Awaitable[Any]], event: Any, ctx: Any) -> Any:
    """Run an async function with async middleware around it."""
    if not middleware:
        return await inner()
    one, *rest = middleware
    call = _AsyncCall(one, lambda: run_async(rest, inner, event, ctx), awaits=True)
    try:
        answer = await one.function(call, event, ctx)
    finally:
        call.close()
    return call.end(answer)


class _Call:
    """What a middleware calls, at most once, to run what is inside."""

    def __init__(self, owner: Hook, inside: Callable[[], Any]) -> None:
        self._owner = owner
        self._inside = inside
        self._answer: Any = None
        self._begun = self._running = self._over = False
        self._fault: str | None = None

    def __call__(self) -> Any:
        self._begin()
        self._running = True
        try:
            self._answer = self._inside()
        finally:
            self._running = False
        return self._answer

    def _begin(self) -> None:
        """Refuse a second call, and one after the middleware has ended."""
        if self._begun or self._over:
            self._fault = "uses call() after it has returned" if self._over else "uses call() twice"
            raise self._broken()
        self._begun = True

    def close(self) -> None:
        """Note that the middleware has ended."""
        self._over = True
        if self._running:
            self._fault = "returns before its call() has"

    def end(self, answer: Any) -> Any:
        """Return the answer of a middleware, if it has one; raise if it has misused its call, whatever it caught."""
        if inspect.iscoroutine(answer) and answer is not self._answer:
            answer.close()
            self._fault = "returns a coroutine: declare it with `async def`"
        if self._fault is not None:
            raise self._broken()
        return self._answer if answer is None else answer

    def _broken(self) -> InvalidHook:
        return InvalidHook(f"The middleware {self._owner.name} {self._fault}.")


class _AsyncCall(_Call):
    """The same for an async middleware, which awaits it; what is inside may be plain."""

    def __init__(self, owner: Hook, inside: Callable[[], Any], *, awaits: bool) -> None:
        super().__init__(owner, inside)
        self._awaits = awaits
        self._unawaited: Coroutine[Any, Any, Any] | None = None

    def __call__(self) -> Any:
        self._begin()
        self._unawaited = self._run()
        return self._unawaited

    async def _run(self) -> Any:
        self._unawaited = None
        self._running = True
        try:
            answer = self._inside()
            self._answer = await answer if self._awaits else answer
        finally:
            self._running = False
        return self._answer

    def close(self) -> None:
        super().close()
        if self._unawaited is not None:
            self._unawaited.close()
            self._fault = "does not await call()"


def _without_loop(owner: Hook, started: Coroutine[Any, Any, Any]) -> Any:
    """Run an async middleware around a plain function: no event loop runs here, so it can await its call only."""
    try:
        started.send(None)
    except StopIteration as stop:
        return stop.value
    started.close()
    raise InvalidHook(
        f"The middleware {owner.name} awaits more than call() around a plain function, where no event loop runs."
    )
