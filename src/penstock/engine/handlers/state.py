"""Keyed state during a lease: read with the claim, written with the settle; writes of a failed event are dropped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.event import check_key
from penstock.core.limits import STATE_BYTES
from penstock.core.moments import LONGEST_SECONDS
from penstock.errors import InvalidInput, StateNeedsKey, TooLarge
from penstock.log.keyed_state import WithTtl

Stored = Any  # scalars as they are, anything else as JSON bytes, so that handlers never share a stored value
Written = dict[str, Any]  # name -> Stored, or WithTtl around one


def freeze(value: Any) -> Stored:
    """Return a value in its stored form, which later changes to the original cannot affect."""
    kind = type(value)
    if kind is int and -(2**63) <= value < 2**63:
        return value
    if kind is WithTtl:
        raise InvalidInput("Set a time to live with ctx.state.set(name, value, ttl_seconds=…).")
    if kind is float and not math.isfinite(value):
        raise InvalidInput(f"A state must be JSON, and JSON has no {value}.")
    if value is None or kind is bool or kind is float or (kind is str and len(value) < 1000 and value.isascii()):
        return value
    try:
        text = orjson.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"A state must be JSON: {error}.") from error
    if b"null" in text and not codec.is_finite(value):
        raise InvalidInput("A state must be JSON, and JSON has neither NaN nor Infinity.")
    if len(text) > STATE_BYTES:
        raise TooLarge(f"A state of {len(text):,} bytes; the limit is {STATE_BYTES:,}.")
    return text


def thaw(stored: Stored) -> Any:
    """Return a stored value as a handler gets it: a copy."""
    return orjson.loads(stored) if isinstance(stored, bytes) else stored


class LeaseState:
    """The state of all keys of a lease, as of its last successful events."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._values = {
            key: {name: freeze(value) for name, value in names.items()} for key, names in (values or {}).items()
        }

    def of(self, key: str) -> Mapping[str, Stored]:
        """Return the values of a key."""
        return self._values.get(key, {})

    def keep(self, key: str, written: Mapping[str, Any]) -> None:
        """Apply the writes of a successful event."""
        names = self._values.get(key)
        if names is None:
            names = self._values[key] = {}
        for name, value in written.items():
            stored = value.value if type(value) is WithTtl else value
            if stored is None:
                names.pop(name, None)
            else:
                names[name] = stored

    def frozen(self) -> dict[str, dict[str, Stored]]:
        """Return all values in stored form; not a copy."""
        return self._values

    @classmethod
    def of_frozen(cls, values: dict[str, dict[str, Stored]]) -> LeaseState:
        """Make it from the result of `frozen`."""
        made = cls()
        made._values = values
        return made


class Missing(Mapping[str, Stored]):
    """The values of an event without state: any access raises `StateNeedsKey`, which says why."""

    def __init__(self, why: str | None = None) -> None:
        self._why = why

    def __getitem__(self, name: str) -> Stored:
        raise StateNeedsKey(self._why)

    def __iter__(self) -> Iterator[str]:
        raise StateNeedsKey(self._why)

    def __len__(self) -> int:
        raise StateNeedsKey(self._why)


class KeyState(MutableMapping[str, Any]):
    """`ctx.state`: the values of the event's key. None and absent are the same.

    Values are copies: to change one, assign it again.
    """

    __slots__ = ("_before", "special", "written")

    def __init__(self, before: Mapping[str, Stored]) -> None:
        self._before = before
        self.written: Written = {}
        self.special = False  # something was deleted, or has a time to live

    def _stored(self, name: str) -> Stored:
        if name in self.written:
            value = self.written[name]
            return value.value if isinstance(value, WithTtl) else value
        return self._before.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default."""
        stored = self._stored(name) if self.written else self._before.get(name)
        if stored is None:
            return default
        return orjson.loads(stored) if type(stored) is bytes else stored

    def __getitem__(self, name: str) -> Any:
        stored = self._stored(name)
        if stored is None:
            raise KeyError(name)
        return thaw(stored)

    def __setitem__(self, name: str, value: Any) -> None:
        if type(name) is not str or (name not in self._before and name not in self.written):
            checked = check_key(name, "state name")
            if checked is None:
                raise InvalidInput("A state needs a name.")
            name = checked
        if type(value) is int and -(2**63) <= value < 2**63:  # the fast path of freeze()
            self.written[name] = value
        else:
            self.written[name] = freeze(value)
            self.special = self.special or value is None

    def set(self, name: str, value: Any, *, ttl_seconds: float | None = None) -> None:
        """Set a value; with `ttl_seconds` it expires."""
        if ttl_seconds is None:
            self[name] = value
            return
        number = isinstance(ttl_seconds, int | float) and not isinstance(ttl_seconds, bool)
        if not number or not 0 < ttl_seconds <= LONGEST_SECONDS:
            raise InvalidInput(f"ttl_seconds must be a positive number, at most a century, not {ttl_seconds!r}.")
        self[name] = value
        self.written[name] = WithTtl(self.written[name], float(ttl_seconds))
        self.special = True

    put = set

    def __delitem__(self, name: str) -> None:
        if self._stored(name) is None:
            raise KeyError(name)
        self.written[name] = None
        self.special = True

    def __iter__(self) -> Iterator[str]:
        return (name for name in dict.fromkeys([*self._before, *self.written]) if self._stored(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<state {dict(self)!r}>"


def as_written(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event wrote in the form that a settle takes."""
    return {
        name: WithTtl(thaw(value.value), value.ttl_seconds) if isinstance(value, WithTtl) else thaw(value)
        for name, value in written.items()
    }
