"""What a streaming query says about single events of its claim: kept with the claim, and settled with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from penstock.core.lease import Failure, Settlement
from penstock.core.signals import Permanent, failure_of, is_a
from penstock.errors import InvalidInput
from penstock.stores.rows import UnsettledRow


class Said(NamedTuple):
    """Why an event failed, and whether it may be retried."""

    failure: Failure
    dead: bool


def said(errors: Mapping[int, Any]) -> dict[int, Said]:
    """Return what was said about events, by offset: a text, or an exception (`Permanent` and `RetryLater` count)."""
    for offset in errors:
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise InvalidInput(f"Errors are given by the offset of their event, a whole number, not {offset!r}.")
    return {offset: Said(failure_of(error), is_a(error, Permanent)) for offset, error in errors.items()}


def encode(some: Mapping[int, Said]) -> str | None:
    """Return the stored form of what was said; None if that is nothing."""
    if not some:
        return None
    return orjson.dumps([[offset, one.dead, *one.failure[:5]] for offset, one in sorted(some.items())]).decode()


def settlement(lease: UnsettledRow) -> Settlement:
    """Return the settlement of a lease: all its members succeeded, but for those about which something was said."""
    failed: dict[int, Failure] = {}
    dead: dict[int, Failure] = {}
    for offset, permanent, *failure in orjson.loads(lease.failures or "[]"):
        (dead if permanent else failed)[offset] = Failure(*failure)
    return Settlement(failed=failed, dead=dead, upto=lease.high)
