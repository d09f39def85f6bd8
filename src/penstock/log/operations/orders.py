"""Orders: what a caller wants of an operation, checked before anything is looked at."""

from __future__ import annotations

from penstock.core.group import Position
from penstock.core.operation import Kind, check_options, kind_of
from penstock.errors import InvalidInput
from penstock.log import checks, rewind
from penstock.log.operations.plan import Order
from penstock.log.selection import Selection


def order(
    kind: str,
    stream: str,
    group: str,
    which: Selection,
    *,
    all: bool,
    to: Position | None,
    state: str,
    canary: int | None,
    rate_per_second: float | None,
    stop_on_return: int | None,
    reason: str | None,
    by: str | None,
) -> Order:
    """Check what a caller asks for."""
    known = kind_of(kind)
    check_options(known, canary, rate_per_second, stop_on_return)
    if known is Kind.REWIND:
        if which != Selection():
            raise InvalidInput("A rewind takes no filter: it delivers everything above `to` again.")
        if to is None:
            raise InvalidInput('A rewind needs `to`: "beginning", "end", an offset or a datetime.')
        to = checks.position(to, "to")
        rewind.check_state(state)
    else:
        which.or_all(all)
        if to is not None or state != "keep":
            raise InvalidInput(f"A {known} takes no `to` and no `state`: they belong to a rewind.")
        if known is Kind.REPLAY and (which.error is not None or which.fingerprint is not None):
            raise InvalidInput("A replay takes no `error` and no `fingerprint`: what is finished has none.")
    author = checks.author(by)
    return Order(known, stream, group, which, to, state, canary, rate_per_second, stop_on_return, reason, author)
