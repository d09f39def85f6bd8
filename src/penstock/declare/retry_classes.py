"""The exception classes of a retry policy on their way to another process: they travel by reference, like handlers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.core.retry import Classes, Retry
from penstock.declare.load import Reference, reference_to


@dataclass(frozen=True, slots=True)
class RetryClasses:
    """`dead_for` and `retry_for` of a policy."""

    dead_for: tuple[Reference, ...] = ()
    retry_for: tuple[Reference, ...] | None = None

    def load(self, retry: Retry) -> Retry:
        """Return a policy with these classes, as this process knows them."""
        if not self.dead_for and self.retry_for is None:
            return retry
        known = None if self.retry_for is None else tuple(one.resolve() for one in self.retry_for)
        return replace(retry, dead_for=tuple(one.resolve() for one in self.dead_for), retry_for=known)


def classes_of(retry: Retry) -> RetryClasses:
    """Pack the classes of a policy; `HandlerUnreachable` if another process could not find one."""
    return RetryClasses(_references(retry.dead_for), None if retry.retry_for is None else _references(retry.retry_for))


def _references(classes: Classes) -> tuple[Reference, ...]:
    return tuple(reference_to(one) for one in classes)
