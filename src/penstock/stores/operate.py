"""What operators do to single deliveries: redrive, replay, kill, reschedule, skip. Every action is audited."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.core.delivery import State
from penstock.errors import IllegalTransition, InFlight, UnknownEvent
from penstock.stores import groups
from penstock.stores.base import Row, Transaction
from penstock.stores.groups import Group

# What is known of a delivery without a row, and goes into the row that it gets.
_SEEN = ("offset", "attempts", "earlier_attempts", "replays", "last_error", "error_code", "error_type", "fingerprint")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which deliveries; everything that is given must hold."""

    event_ids: Sequence[uuid.UUID] | None = None
    error: str | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def params(self) -> dict[str, object]:
        return {
            "event_ids": None if self.event_ids is None else list(self.event_ids),
            "error": self.error,
            "event_type": self.event_type,
            "since": self.since,
            "until": self.until,
        }

    def detail(self) -> dict[str, object]:
        return {name: str(value) for name, value in self.params().items() if value is not None}


def redrive(tx: Transaction, stream: str, group_name: str, which: Filter, *, dry_run: bool, by: str) -> int:
    """DEAD → PENDING with a fresh budget; what is overwritten stays in the attempt log."""
    group = groups.locked(tx, stream, group_name)
    now = tx.now()
    offsets = [row.offset for row in tx.rows("redrive.find", group_id=group.group_id, **which.params())]
    if dry_run:
        return len(offsets)
    tx.run("redrive.log", group_id=group.group_id, offsets=offsets, by=by, now=now)
    moved = tx.run("redrive.move", group_id=group.group_id, offsets=offsets, now=now)
    groups.audit(tx, by, "redrive", group, moved, which.detail())
    return moved


def replay(tx: Transaction, stream: str, group_name: str, which: Filter, *, dry_run: bool, by: str) -> int:
    """PUBLISHED → PENDING; an event that was published as part of a range gets a row of its own."""
    group = groups.locked(tx, stream, group_name)
    now = tx.now()
    after, upto = groups.between(tx, stream, which.since, which.until)
    found = tx.rows("replay.find", group_id=group.group_id, stream=stream, after=after, upto=upto, **which.params())
    if dry_run or not found:
        return len(found)
    rows = [row.offset for row in found if row.has_row]
    ranged = {row.offset: row.replays for row in found if not row.has_row}
    moved = 0
    if rows:
        tx.run("replay.log_rows", group_id=group.group_id, offsets=rows, by=by, now=now)
        moved += tx.run("replay.move_rows", group_id=group.group_id, offsets=rows, now=now)
    if ranged:
        params = {"group_id": group.group_id, "offsets": [*ranged], "now": now}
        tx.run("replay.log_ranged", by=by, **params)
        replays = [*ranged.values()]
        moved += tx.run("replay.move_ranged", stream=stream, group_name=group_name, replays=replays, **params)
    groups.audit(tx, by, "replay", group, moved, which.detail())
    return moved


def kill(tx: Transaction, stream: str, group_name: str, ids: Sequence[uuid.UUID], reason: str, by: str) -> int:
    """PENDING → CLAIMED → DEAD, in one transaction; all of them or none."""
    group = groups.locked(tx, stream, group_name)
    now = tx.now()
    offsets = _pending_rows(tx, group, ids, State.DEAD, now)
    params = {"group_id": group.group_id, "offsets": offsets, "by": by, "now": now}
    tx.run("kill.claim", **params)
    tx.run("kill.bury", reason=reason, **params)
    tx.run("kill.log", reason=reason, **params)
    groups.audit(tx, by, "kill", group, len(offsets), {"reason": reason, "event_ids": [str(one) for one in ids]})
    return len(offsets)


def reschedule(
    tx: Transaction, stream: str, group_name: str, ids: Sequence[uuid.UUID], available_at: datetime, by: str
) -> int:
    """Move the time at which PENDING deliveries become due; all of them or none."""
    group = groups.locked(tx, stream, group_name)
    now = tx.now()
    offsets = _pending_rows(tx, group, ids, State.PENDING, now)
    tx.run("reschedule.move", group_id=group.group_id, offsets=offsets, available_at=available_at, now=now)
    tx.run("reschedule.log", group_id=group.group_id, offsets=offsets, by=by, now=now)
    detail = {"available_at": available_at.isoformat(), "event_ids": [str(one) for one in ids]}
    groups.audit(tx, by, "reschedule", group, len(offsets), detail)
    return len(offsets)


def skip(tx: Transaction, stream: str, group_name: str, key: str, by: str) -> int:
    """Let a key that halted at a dead letter go on; the dead letter stays DEAD."""
    group = groups.locked(tx, stream, group_name)
    skipped = tx.run("skip.key", group_id=group.group_id, key=key, now=tx.now())
    groups.audit(tx, by, "skip", group, skipped, {"key": key})
    return skipped


def _pending_rows(tx: Transaction, group: Group, ids: Sequence[uuid.UUID], after: State, now: datetime) -> list[int]:
    """Offsets of PENDING deliveries, each with a row of its own from now on."""
    found = {
        row.event_id: row
        for row in tx.rows("operate.find", group_id=group.group_id, stream=group.stream, ids=list(ids))
    }
    for one in ids:
        _require_pending(found.get(one), one, group, after)
    new = [row for row in found.values() if not row.has_row]
    missing = [row.offset for row in new]
    if missing:
        tx.run(
            "operate.make_rows",
            group_id=group.group_id,
            stream=group.stream,
            group_name=group.group_name,
            rows=[{name: getattr(row, name) for name in _SEEN} for row in new],
            now=now,
        )
        tx.run("operate.leave_returned", group_id=group.group_id, offsets=missing)
    return sorted(row.offset for row in found.values())


def _require_pending(row: Row | None, event_id: uuid.UUID, group: Group, after: State) -> None:
    if row is None:
        raise UnknownEvent(f"{event_id} is no delivery of {group.group_name!r} on {group.stream!r}.")
    if row.state == State.CLAIMED:
        raise InFlight(f"{event_id} is CLAIMED by {row.claimed_by}; nothing was changed.")
    if row.state != State.PENDING:
        raise IllegalTransition(f"{event_id} is {row.state}: {row.state} → {after} is not a transition.")
