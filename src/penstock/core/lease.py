"""The lease: what was claimed, what a settle reports, and how an expired lease is split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, NewType

from penstock.core.columns import Columns
from penstock.core.limits import SUSPECT_PIECES

LeaseId = NewType("LeaseId", int)
Steps = Sequence[tuple[int, int]]  # (offset, number): the number applies from this offset on
Token = NewType("Token", int)


class LeaseOutcome(StrEnum):
    """How a lease ended."""

    SETTLED = "settled"
    RELEASED = "released"
    EXPIRED = "expired"
    REWOUND = "rewound"


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease as stored. The row alone determines which events it contains, and that never changes."""

    id: LeaseId
    token: Token
    stream: str
    group_name: str
    group_id: int
    lane: int
    lanes: int
    binding: int
    low: int | None
    high: int | None
    holes: Sequence[int]
    offsets: Sequence[int] | None
    members: int
    attempts: int
    replay: int
    claimed_by: str
    claimed_at: datetime
    expires_at: datetime
    # Known to the claimer but not stored; it makes reading faster.
    found: str | None = None  # its members, in the store's own encoding
    whole: bool = False  # every event of its lane in (low, high]
    simple: bool = False  # the group has only such ranges, and one lane
    ordered: bool = False  # in this group the events of a key wait for its first
    left: int | None = None  # upper bound of the events after it, so that workers can share a group fairly
    events: Columns | None = field(default=None, compare=False, repr=False)  # its events, if the claim has read them
    earlier: Steps = ()  # attempts of earlier lives of its events
    wanted: str | None = None  # what its run should do: run, quiet or stop; None without a run

    @property
    def is_range(self) -> bool:
        """Whether it is a range of the log, as opposed to a list of exception rows."""
        return self.offsets is None


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to claim now; `until` is when something may become due, None if only an append can change that."""

    until: datetime | None
    paused: bool = False
    horizon: int = 0  # how far the claim looked
    end: int = 0  # the last offset that was assigned
    seconds: float | None = None  # the time until `until`, by the database's clock
    unavailable: str | None = None  # the target's error, if the circuit of the group is open


@dataclass(frozen=True, slots=True)
class Passed:
    """The range held no matching event and was skipped; claim again at once."""


DEATHS = frozenset({"process_died", "out_of_memory", "lease_expired"})  # error codes of events that kill their process


class Failure(NamedTuple):
    """Why an event did not succeed. A tuple, because thousands of them are sent from the handlers' process."""

    code: str
    message: str
    retry_after_seconds: float | None = None
    error_type: str | None = None  # the exception's class, if there was one
    fingerprint: str | None = None  # the kind of error; see `core.fingerprint`
    traceback: str | None = None  # sent now and then for each kind, not with every failure


def error_columns(failure: Failure | None) -> dict[str, str | None]:
    """Return a failure as the error columns of a row; all None without one."""
    if failure is None:
        return dict.fromkeys(("last_error", "error_code", "error_type", "fingerprint"))
    return {
        "last_error": failure.message,
        "error_code": failure.code,
        "error_type": failure.error_type,
        "fingerprint": failure.fingerprint,
    }


@dataclass(frozen=True, slots=True)
class Effects:
    """Changes that are made if, and only if, an event succeeds (or all events of a lease)."""

    state: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    emit: Sequence[Any] = ()
    execute: Sequence[tuple[str, Sequence[Any]]] = ()
    writers: Sequence[int] = ()  # offsets of the events whose writes `state` holds, if there are several

    def __bool__(self) -> bool:
        return bool(self.state or self.emit or self.execute)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Everything a settle reports. Members not named are done up to `upto`; above it they come back as one range."""

    failed: Mapping[int, Failure] = field(default_factory=dict)
    dead: Mapping[int, Failure] = field(default_factory=dict)
    released: Set[int] = frozenset()
    suspects: Mapping[int, Failure] = field(default_factory=dict)  # one of them, unknown which, killed a process
    skipped: Mapping[int, str] = field(default_factory=dict)  # PUBLISHED, with a reason
    upto: int | None = None
    due_after_seconds: float = 0.0
    effects: Effects = field(default_factory=Effects)
    event_effects: Mapping[int, Effects] = field(default_factory=dict)
    versions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    unavailable: Failure | None = None  # the target is down: opens the circuit of the group
    keep: Set[int] = frozenset()  # still running: each goes on in a lease of its own
    results: Mapping[int, str] = field(default_factory=dict)  # what jobs returned, as JSON
    moves: Sequence[str] = ()  # names of what Spark's tasks have staged and the settle moves into place
    # Keys of the events that did not succeed and of all others with those keys, in offset order. Given them, an ordered
    # group need not read its whole range.
    keys: Mapping[int, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a settle: how many events had each outcome."""

    published: int
    failed: int
    dead: int
    released: int
    kept: Sequence[Any] = field(default=(), repr=False, compare=False)  # the leases of the events that go on


def cut(members: Sequence[int], low: int, high: int, pieces: int = SUSPECT_PIECES) -> list[tuple[int, int, int]]:
    """Split a range into at most `pieces` ranges of about equal size: (low, high, members) each, without gaps.

    >>> cut([3, 5, 9], 0, 10, pieces=2)
    [(0, 5, 2), (5, 10, 1)]
    """
    if not members:
        return []
    count = min(pieces, len(members))
    size, larger = divmod(len(members), count)
    parts: list[tuple[int, int, int]] = []
    start, taken = low, 0
    for number in range(count):
        width = size + (number < larger)
        taken += width
        end = high if taken == len(members) else members[taken - 1]
        parts.append((start, end, width))
        start = end
    return parts


def suspect_parts(lease_id: int, offsets: Sequence[int]) -> dict[int, int]:
    """Assign each row of a lost lease to a part; a later lease takes rows of one part only.

    >>> suspect_parts(7, [10, 20, 30])
    {10: 112, 20: 113, 30: 114}
    """
    pieces = cut(sorted(offsets), 0, 0)
    rows = iter(sorted(offsets))
    return {
        next(rows): lease_id * SUSPECT_PIECES + number
        for number, (_, _, width) in enumerate(pieces)
        for _ in range(width)
    }


def alone(offset: int) -> int:
    """Return the part of a row that killed its process alone: it is claimed alone until it is resolved."""
    return -offset


def part_after(part: int | None, given: int | None, *, failures: int) -> int | None:
    """Return the part of a row that comes back: a failure of its own ends a part, but not being alone."""
    if given is not None:
        return given
    return part if failures == 0 or (part is not None and part < 0) else None


def split_released(
    members: Sequence[int],
    released: Set[int],
    low: int,
    high: int,
    rows: Set[int] = frozenset(),
    touched: int | None = None,
) -> tuple[int, frozenset[int]]:
    """Return where the finished part of a range ends, and which members are released one by one.

    The released end of a lease goes back as one range, without the failed members, which get `rows` of their own;
    members released before it go back as rows. After the first `touched` members all are released.

    >>> split_released([1, 2, 3, 4], {2, 3, 4}, low=0, high=9)
    (1, frozenset())
    >>> split_released([1, 2, 3, 4], {2, 4}, low=0, high=9, rows={3})
    (1, frozenset())
    >>> split_released([1, 2, 3, 4], {1}, low=0, high=9, touched=2)
    (2, frozenset({1}))
    """
    keep = len(members) if touched is None else touched
    while keep and (members[keep - 1] in released or members[keep - 1] in rows):
        keep -= 1
    while keep < len(members) and members[keep] in rows:
        keep += 1
    if keep == len(members):
        return high, frozenset(released)
    upto = members[keep - 1] if keep else low
    return upto, frozenset(offset for offset in released if offset <= upto)
