"""Write members that were not published: as rows of their own, or as a returned range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.core import codec, fingerprint
from penstock.core.delivery import Reason, State
from penstock.core.group import Group
from penstock.core.job import CANCELLED
from penstock.core.lanes import slice_of
from penstock.core.lease import DEATHS, Failure, alone, error_columns, suspect_parts
from penstock.core.lifecycle import next_attempt
from penstock.errors import NotInLease
from penstock.stores.base import Transaction
from penstock.stores.rows import LeaseRecord, MemberRow, Place, bounds

Jitter = Callable[[], float]


def give_back(tx: Transaction, lease: LeaseRecord, group: Group, now: datetime, reason: Reason) -> None:
    """Put the members of an ended lease back: a range as one returned range, rows as PENDING."""
    if lease.offsets is None:
        add_returned(tx, lease, *bounds(lease), lease.members, now, reason, now)
    else:
        back = unblamed(reason)
        write_rows(tx, lease, group, [Given(offset, now, back) for offset in lease.offsets], now)


def add_returned(
    tx: Transaction,
    lease: LeaseRecord,
    low: int,
    high: int,
    members: int,
    due: datetime,
    reason: str,
    now: datetime,
    because: Failure | None = None,
) -> None:
    """Add a returned range, which waits to be claimed again."""
    tx.run(
        "returned.add",
        group_id=lease.group_id,
        lane=lease.lane,
        lanes=lease.lanes,
        binding=lease.binding,
        low=low,
        high=high,
        members=members,
        attempts=lease.attempts,
        replay=lease.replay,
        available_at=due,
        reason=reason,
        returned_at=now,
        **error_columns(because),
    )


class Fate(NamedTuple):
    """An outcome that many members of a lease may share."""

    state: State
    reason: str | None = None
    failures: int = 0  # to add
    error: str | None = None
    code: str | None = None
    outcome: str = "failed"  # the word in the attempt log
    dead_at: datetime | None = None
    part: int | None = None  # of a lost lease: it is claimed again with this part only
    error_type: str | None = None
    fingerprint: str | None = None


class Given(NamedTuple):
    """The outcome of one member that was not published."""

    offset: int
    available_at: datetime
    fate: Fate


def write_rows(tx: Transaction, lease: LeaseRecord, group: Group, rows: list[Given], now: datetime) -> None:
    """Write exception rows, new ones for a range and changed ones for a list, each with a line in the attempt log."""
    if not rows:
        return
    alike: dict[Fate, list[tuple[int, datetime]]] = {}
    for row in rows:
        alike.setdefault(row.fate, []).append((row.offset, row.available_at))
    common = {
        "group_id": group.group_id,
        "lease": lease.id,
        "claimed_by": lease.claimed_by,
        "claimed_at": lease.claimed_at,
        "now": now,
        "count": len(rows),
        "rows": [{"members": members, **fate._asdict()} for fate, members in alike.items()],
    }
    if lease.offsets is None:
        low, _ = bounds(lease)
        written = tx.run(
            "settle.insert_rows",
            stream=group.stream,
            group_name=group.group_name,
            attempts=lease.attempts,
            replays=lease.replay,
            lived=group.lived(lease.replay, low),
            **common,
        )
    else:
        written = tx.run("settle.update_rows", **common)
    if written != len(rows):
        raise NotInLease("An outcome names an event that is not in the lease.")


def unblamed(reason: Reason, because: Failure | None = None) -> Fate:
    """Make the outcome of a release without a failure; `because` is the error of an unavailable target, if any."""
    if because is None:
        return Fate(State.PENDING, reason, outcome="released")
    kind = because.error_type, because.fingerprint
    return Fate(State.PENDING, reason, 0, because.message, because.code, "released", None, None, *kind)


def bury(offset: int, failure: Failure, now: datetime) -> Given:
    """Make the outcome of a failure that leads to DEAD."""
    kind = failure.error_type, failure.fingerprint
    reason = CANCELLED if failure.code == CANCELLED else None
    return Given(offset, now, Fate(State.DEAD, reason, 1, failure.message, failure.code, "dead", now, None, *kind))


def fail(group: Group, member: MemberRow, failure: Failure, now: datetime, jitter: Jitter) -> Given:
    """Make the outcome of a failed attempt: PENDING after a backoff, or DEAD if the budget or the age is exhausted."""
    due = next_attempt(
        group.retry.with_attempts(member.max_attempts),
        member.failures + 1,
        created_at=member.created_at,
        now=now,
        u=jitter(),
        retry_after_seconds=failure.retry_after_seconds,
    )
    if due is None:
        return bury(member.offset, failure, now)
    part = alone(member.offset) if failure.code in DEATHS else None
    kind = failure.error_type, failure.fingerprint
    fate = Fate(State.PENDING, Reason.RETRY, 1, failure.message, failure.code, "failed", None, part, *kind)
    return Given(member.offset, due, fate)


def suspect(lease: LeaseRecord, failures: Mapping[int, Failure], now: datetime) -> list[Given]:
    """Make the outcomes of members of which one killed its process, or failed a batch call.

    They come back in parts, without a failure for now.
    """
    parts = suspect_parts(lease.id, [*failures])

    def fate(offset: int, why: Failure) -> Fate:
        outcome = "expired" if why.code in DEATHS else "released"
        return unblamed(Reason.SUSPECT, why)._replace(outcome=outcome, part=parts[offset])

    return [Given(offset, now, fate(offset, why)) for offset, why in failures.items()]


def skip(offset: int, reason: str, now: datetime) -> Given:
    """Make the outcome of an event that needs no handling: PUBLISHED, with the reason."""
    text = codec.error_text(reason)
    fate = Fate(State.PUBLISHED, f"{Reason.SKIPPED}: {text}", 0, text, Reason.SKIPPED, "published")
    return Given(offset, now, fate)


def too_old(group: Group, created_at: datetime, now: datetime, why: Failure) -> Failure:
    """Make the failure of an event that waited for its target longer than `max_age_seconds`."""
    age = (now - created_at).total_seconds()
    limit = group.retry.max_age_seconds
    return fingerprint.of_text("too_old", f"too_old: {age:.0f} s old, max_age_seconds is {limit:g}; {why.message}")


def remember_kinds(tx: Transaction, failures: Iterable[Failure], now: datetime) -> None:
    """Store each kind of error once, with its traceback; a thousand equal failures cost one row."""
    kinds: dict[str, Failure] = {}
    for failure in failures:
        if failure.fingerprint is not None:
            known = kinds.get(failure.fingerprint)
            if known is None or known.traceback is None:
                kinds[failure.fingerprint] = failure
    if kinds:
        names = ("fingerprint", "code", "error_type", "message", "traceback")
        rows = [{name: getattr(kinds[kind], name) for name in names} for kind in sorted(kinds)]
        tx.later("settle.fingerprints", rows=rows, now=now)


class Member(NamedTuple):
    """A member of a lease of which only the offset matters; otherwise a row with the same names is used."""

    offset: int
    ordering_key: str | None = None
    created_at: datetime | None = None
    failures: int = 0
    max_attempts: int | None = None


def all_alike(group: Group, lease: LeaseRecord) -> bool:
    """Return whether a lease holds every event of its stream in its range, and only offsets matter."""
    if lease.offsets is not None or lease.lanes > 1 or lease.holes or group.ordered or group.of_jobs:
        return False
    return group.retry.max_age_seconds is None and group.span(lease.binding).everything


def members_of(
    tx: Transaction,
    group: Group,
    lease: LeaseRecord,
    *,
    upto: int | None = None,
    offsets: list[int] | None = None,
    keys: list[str] | None = None,
) -> list[MemberRow]:
    """Return members of a lease with their failures so far: all, up to an offset, by offset, or by key.

    Their age is included if the group has `max_age_seconds`, and how often they may be tried if they are jobs.
    """
    looked_up = {"aged": group.retry.max_age_seconds is not None, "jobs": group.of_jobs}
    if lease.offsets is not None:
        listed = lease.offsets if offsets is None else offsets
        return tx.rows(
            "settle.member_rows", group_id=group.group_id, lease=lease.id, offsets=listed, keys=keys, **looked_up
        )
    first, last = slice_of(lease.lane, lease.lanes)
    span = group.span(lease.binding)
    where = {
        "stream": group.stream,
        "low": lease.low,
        "high": lease.high if upto is None else upto,
        "holes": list(lease.holes),
        "first_bucket": first,
        "last_bucket": last,
        "binding": lease.binding,
        "type_regex": span.type_regex,
        "headers": span.headers,
        **looked_up,
    }
    if offsets is not None:
        return tx.rows("settle.named_members", offsets=offsets, **where)
    return tx.rows("settle.members", keys=keys, **where)


def count_wanted(
    tx: Transaction,
    group: Group,
    where: Place,
    low: int,
    high: int,
    *,
    holes: Sequence[int] = (),
    without_rows: bool = False,
) -> int:
    """Count the events of (low, high] in the lane of a lease or a returned range, without its holes."""
    first, last = slice_of(where.lane, where.lanes)
    span = group.span(where.binding)
    row = tx.one(
        "settle.count_tail",
        stream=group.stream,
        low=low,
        high=high,
        without_rows_of=group.group_id if without_rows else None,
        holes=list(holes),
        first_bucket=first,
        last_bucket=last,
        binding=where.binding,
        type_regex=span.type_regex,
        headers=span.headers,
    )
    return 0 if row is None else int(row.members)
