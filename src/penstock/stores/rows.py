"""What the blocks of claim, settle and their kin answer: rows with named columns.

Each class names the columns of one block, or those that several blocks share and the verbs use. At run time a row is
what the store's driver makes of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol


class GroupRow(Protocol):
    """`group.find`: a group as stored, with its bindings as JSON and its circuit."""

    group_id: int
    stream: str
    group_name: str
    ordering: str | None
    keyed: bool
    lanes: int
    starts: list[int]
    floor: int
    matched_before: int
    on_dead: str
    lease_seconds: float
    max_attempts: int
    base_seconds: float
    factor: float
    cap_seconds: float
    jitter: float
    max_age_seconds: float | None
    max_in_flight: int | None
    rate_per_second: float | None
    rewinds: int
    rewound_upto: int
    paused: bool
    pause_reason: str | None
    created_at: datetime
    bindings: str
    circuit_opened_at: datetime | None
    delay_seconds: float
    probe_at: datetime
    last_error: str | None
    error_code: str | None
    probe: int | None
    probe_expires_at: datetime | None


class CursorRow(Protocol):
    """`claim.lanes`: how far a lane has come, and how many events it has passed; None if it has not begun."""

    lane: int
    cursor: int | None
    total: int | None


class LaneRow(GroupRow, CursorRow, Protocol):
    """`claim.look`: a lane as a claimer finds it, with its group."""

    last_lease: int | None
    last_was_range: bool | None
    last_done: int | None
    last_was_clean: bool | None
    open_ids: list[int]
    expired_ids: list[int]
    expires_at: datetime | None  # the first of the open leases
    has_returned: bool
    returned_low: int | None
    has_rows: bool
    rows_wait: bool
    has_dated: bool
    in_flight: int
    last: int
    looked_at: datetime


class NextDueRow(Protocol):
    """`claim.next_due`: when time alone makes something claimable."""

    row_at: datetime | None
    returned_at: datetime | None


class DueRow(Protocol):
    """`claim.due_rows`, `claim.ordered_rows`: a row that can be claimed, and the part of a lost lease it belongs to."""

    offset: int
    part: int | None


class RangeRow(Protocol):
    """`claim.*_range`, `claim.careful_lane`: how far a range goes, and what it steps over."""

    high: int
    members: int
    holes: list[int]
    delayed: list[int]
    blocked: list[int]
    scanned: int
    found: str | None


class OpenedRow(Protocol):
    """`lease.open`."""

    id: int
    token: int
    wanted: str | None


class RangeBeforeRow(Protocol):
    """`claim.ranges_before`: a range that was claimed in an earlier life."""

    low: int
    high: int
    holes: list[int]


class RowBeforeRow(Protocol):
    """`claim.rows_before`: how often an event was claimed as a row."""

    offset: int
    claims: int


class Place(Protocol):
    """The lane and the binding of a lease, a returned range or a piece of one."""

    @property
    def lane(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def binding(self) -> int: ...


class ReturnedRow(Protocol):
    """`claim.returned`, `returned.all`, `rewind.crossing`: a range that waits to be claimed again."""

    id: int
    group_id: int
    lane: int
    lanes: int
    binding: int
    low: int
    high: int
    members: int
    attempts: int
    replay: int
    available_at: datetime
    reason: str
    last_error: str | None
    error_code: str | None
    error_type: str | None
    fingerprint: str | None
    returned_at: datetime


class HeldRow(Protocol):
    """`reader.held`: whether a lease is still held, and with which token."""

    id: int
    token: int
    outcome: str | None
    expires_at: datetime


class LeaseRecord(HeldRow, Protocol):
    """`lease.lock`, `reap.lock`, `rewind.open`, `reader.leases`: a lease as stored, with the names of its group."""

    group_id: int
    stream: str
    group_name: str
    lane: int
    lanes: int
    binding: int
    claimed_by: str
    claimed_at: datetime
    attempts: int
    replay: int
    members: int
    low: int | None  # of a range; a list of rows has offsets instead
    high: int | None
    holes: list[int]
    offsets: list[int] | None
    digest: bytes | None
    answer: Sequence[int] | None
    run: int | None
    heartbeat_at: datetime | None


def bounds(lease: LeaseRecord) -> tuple[int, int]:
    """(low, high] of a lease that holds a range."""
    assert lease.low is not None and lease.high is not None, f"lease {lease.id} holds rows"
    return lease.low, lease.high


class MemberRow(Protocol):
    """`settle.members`, `settle.named_members`, `settle.member_rows`: an event of a lease."""

    @property
    def offset(self) -> int: ...
    @property
    def ordering_key(self) -> str | None: ...
    @property
    def created_at(self) -> datetime | None: ...
    @property
    def failures(self) -> int: ...
    @property
    def max_attempts(self) -> int | None: ...  # of a job that has its own


class EndedRow(Protocol):
    """`rewind.ended`: how far the rows reach whose lives end, and the greatest number of such a life."""

    replays: int
    upto: int


class UnsettledRow(Protocol):
    """`reader.unsettled`: a lease of a reader that it has not settled."""

    claim: int
    id: int
    token: int
    high: int | None
    outcome: str | None
    failures: str | None  # JSON; see `log.reader_outcomes`


class OpenRow(Protocol):
    """`reader.open`: an open lease of a reader."""

    id: int
    claimed_by: str
    claimed_at: datetime
    expires_at: datetime
    members: int


class DeathRow(Protocol):
    """`guard.deaths`: a lease in which an event took its process down."""

    lease: int
    claimed_at: datetime
    expires_at: datetime
    expired: bool


class GroupName(Protocol):
    """`reap.groups`."""

    stream: str
    group_name: str


class IngestPosition(Protocol):
    """`ingest.positions`: how far a part of a source has been read."""

    part: str
    position: int
    began_at: datetime


class IngestRange(Protocol):
    """`ingest.unacknowledged`: a range of remembered entries."""

    id: int
    low: bytes
    high: bytes


class ImportRow(Protocol):
    """`import.find`, `import.locked`: an import; options, position and counts are JSON."""

    id: int
    options: str
    read_upto: str | None
    counts: str
    state: str
    by: str


class ImportGroupRow(Protocol):
    """`import.groups`: a group that an import has made, and how far its finished events are settled."""

    group_id: int
    settled_upto: int
    done: bool
    stream: str
    group_name: str


class PlacedRow(Protocol):
    """`import.known`: where an event is."""

    event_id: uuid.UUID
    stream: str
    offset: int
    created_at: datetime
    bucket: int


class OperationRow(Protocol):
    """`operation.find`: an operation as stored."""

    id: int
    kind: str
    stream: str
    group_name: str
    group_id: int
    filter: str
    cutoff_at: datetime | None
    cutoff_offset: int | None
    canary: int | None
    rate_per_second: float | None
    stop_on_return: int | None
    reason: str | None
    by: str
    planned: int
    state: str
    phase: str
    note: str | None
    moved_upto: int
    moved: int
    returned: int
    canaries: str
    canaries_ended: int
    rate_at: datetime | None
    next_at: datetime
    token: int
    held_by: str | None
    expires_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
