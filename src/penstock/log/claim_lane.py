"""Claim from one lane of a group: returned ranges first, then rows and the next range in turn."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from penstock.core import limits
from penstock.core.columns import Columns
from penstock.core.group import Group
from penstock.core.lanes import slice_of
from penstock.core.lease import LeaseId, LeaseRow, Passed, Steps, Token, error_columns
from penstock.log import lives, ranges
from penstock.log.ranges import Range, Stretch
from penstock.stores.base import Transaction
from penstock.stores.rows import DueRow, LaneRow, OpenedRow, ReturnedRow

TOKEN_BITS = 20  # random low bits below the lease id: a token grows with every claim and cannot be guessed


@dataclass(slots=True)
class LaneClaim:
    """One claim over the lanes of a locked group."""

    tx: Transaction
    group: Group
    now: datetime
    limit: int
    claimed_by: str
    lease_seconds: float
    upto: int | None = None
    run: int | None = None  # the engine's run that this lease is counted for
    read: Callable[[LeaseRow], tuple[str, Mapping[str, object]]] | None = None
    horizon: int | None = None

    def take(self, lane: LaneRow) -> LeaseRow | Passed | None:
        """Claim from this lane; None if nothing is due: returned ranges first, then rows and the next range in turn."""
        if self.group.of_jobs:
            return self._take_oldest(lane)
        return self._take_in_order(lane) if self.group.ordered else self._take_any(lane)

    def _take_oldest(self, lane: LaneRow) -> LeaseRow | Passed | None:
        """Claim the job that has the lowest offset and is due, and those after it of the same kind.

        Rows are older than the next range, but for those of jobs that were given up before anybody claimed them, and
        then redriven.
        """
        piece = self._lowest_returned(lane)
        ceiling = self._cursor(lane) if piece is None else piece.low
        due = self._due_jobs(lane)
        older = [row for row in due if row.offset <= ceiling]
        if older:
            return self.lease_rows(lane, older)
        if piece is not None:
            return self._take_returned(lane, piece)
        if due:
            self.upto = due[0].offset - 1 if self.upto is None else min(self.upto, due[0].offset - 1)
        found = self.take_next(lane)
        return self.lease_rows(lane, due) if found is None and due else found

    def _due_jobs(self, lane: LaneRow) -> list[DueRow]:
        """Return the rows of due jobs with the lowest offsets, those that may share a lease."""
        if not lane.rows_wait:
            return []
        found = self.tx.rows("claim.due_rows", **{**self._rows_of(lane), "most": limits.ROWS_PER_LEASE})
        due: list[DueRow] = sorted(found, key=lambda row: row.offset)[: self.limit]
        return [*takewhile(lambda row: row.part == due[0].part, due)]

    def _take_any(self, lane: LaneRow) -> LeaseRow | Passed | None:
        piece = self._lowest_returned(lane)
        if piece is not None:
            return self._take_returned(lane, piece)
        if lane.last_was_range and self._ripe(lane) and (rows := self._take_rows(lane)) is not None:
            return rows
        found = self.take_next(lane)
        return self._take_rows(lane) if found is None else found

    def _take_in_order(self, lane: LaneRow) -> LeaseRow | Passed | None:
        """Claim the lowest offsets first, and nothing above what the lane waits for.

        Rows come before ranges as long as all of them get done: a range would leave out the events that wait for them,
        which would become rows, too.
        """
        ceiling = self._cursor(lane)
        if lane.returned_low is not None:
            ceiling = min(ceiling, lane.returned_low)
        rows_first = lane.last_was_range or lane.last_was_clean
        if rows_first and (rows := self._take_rows(lane, ceiling)) is not None:
            return rows
        piece = self._lowest_returned(lane)
        if piece is None:
            found = self.take_next(lane)
        else:
            found = self._take_returned(lane, piece) if piece.available_at <= self.now else None
        return self._take_rows(lane, ceiling) if found is None and not rows_first else found

    def _lowest_returned(self, lane: LaneRow) -> ReturnedRow | None:
        if lane.returned_low is None:
            return None
        return self.tx.one(
            "claim.returned",
            group_id=self.group.group_id,
            lanes=self.group.lanes,
            lane=lane.lane,
            ordered=self.group.ordered,
            now=self.now,
        )

    def _cursor(self, lane: LaneRow) -> int:
        return int(self.group.starts[lane.lane] if lane.cursor is None else lane.cursor)

    # --- rows ----------------------------------------------------------------------------------------------------

    def _ripe(self, lane: LaneRow) -> bool:
        """Return whether to claim rows before the next range: a lease of few rows costs as much as one of many."""
        if not lane.rows_wait:
            return False
        waiting_since = self.now - timedelta(seconds=limits.ROWS_WAIT_SECONDS)
        row = self.tx.one("claim.ripe", waiting_since=waiting_since, **self._rows_of(lane))
        return row is not None and bool(row.ripe)

    def _rows_of(self, lane: LaneRow) -> dict[str, object]:
        low, high = slice_of(lane.lane, self.group.lanes)
        return {
            "group_id": self.group.group_id,
            "first_bucket": low,
            "last_bucket": high,
            "now": self.now,
            "most": min(self.limit, limits.ROWS_PER_LEASE),
        }

    def _rows_worth_it(self, lane: LaneRow) -> int:
        """Return how many rows of an ordered lane to claim: four times what its last lease of rows finished.

        After a failure the rest of a key comes back, so a key that keeps failing would have all its waiting events
        claimed over and over.
        """
        done = None if lane.last_was_range else lane.last_done
        return limits.ROWS_PER_LEASE if done is None else min(limits.ROWS_PER_LEASE, max(limits.ROWS_LEAST, 4 * done))

    def _take_rows(self, lane: LaneRow, ceiling: int | None = None) -> LeaseRow | None:
        if not lane.rows_wait:
            return None
        due: list[DueRow]
        params = self._rows_of(lane)
        if self.group.ordered:
            params["most"] = min(self._rows_worth_it(lane), self.limit)
            due = self.tx.rows("claim.ordered_rows", ceiling=ceiling, halts=self.group.halts, **params)
        else:
            due = self.tx.rows("claim.due_rows", **params)
        return self.lease_rows(lane, due) if due else None

    def lease_rows(self, lane: LaneRow, due: Sequence[DueRow]) -> LeaseRow:
        """Claim rows of this lane; of suspects only those of one part."""
        taken = sorted(row.offset for row in due if row.part == due[0].part)  # suspects: one part of a lost lease
        lease = self._open(lane, members=len(taken), offsets=taken)
        params = {"offsets": taken, "lease": lease.id, "claimed_by": self.claimed_by, "now": self.now}
        rows, events = self._last("claim.mark_rows", lease, group_id=self.group.group_id, **params)
        assert len(rows) == len(taken), "rows of a group change hands only under its lock"
        return replace(lease, events=events)

    def _last(self, block: str, lease: LeaseRow, /, **params: object) -> tuple[list[Any], Columns | None]:
        """Run the last statement of the claim. With `read` it also reads the events of a small lease, and commits."""
        if self.read is None:
            return self.tx.rows(block, **params), None
        small = lease.members <= limits.READ_WITH_CLAIM
        return self.tx.finish(block, read=self.read(lease) if small else None, **params)

    # --- ranges --------------------------------------------------------------------------------------------------

    def _take_returned(self, lane: LaneRow, piece: ReturnedRow) -> LeaseRow | Passed:
        because = {name: getattr(piece, name) for name in error_columns(None)}
        where = Stretch(self.group, lane, piece.binding, piece.low, piece.high, self.limit, self.now)
        found = ranges.find(self.tx, where, attempts=piece.attempts, replay=piece.replay, because=because)
        self.tx.run("claim.drop_returned", id=piece.id)
        if found.high < piece.high:
            self.tx.run(
                "returned.add",
                group_id=self.group.group_id,
                lane=lane.lane,
                lanes=self.group.lanes,
                binding=piece.binding,
                low=found.high,
                high=piece.high,
                members=max(0, piece.members - found.members - len(found.stepped_into)),
                attempts=piece.attempts,
                replay=piece.replay,
                available_at=piece.available_at,
                reason=piece.reason,
                returned_at=piece.returned_at,
                **because,
            )
        return self._lease_range(lane, found, attempts=piece.attempts + 1, replay=piece.replay, fresh=False)

    def take_next(self, lane: LaneRow) -> LeaseRow | Passed | None:
        """Claim the next range of this lane; None if there is nothing in it."""
        if self.horizon is None:
            self.horizon = self.tx.horizon(lane.last)
            if self.upto is not None:
                self.horizon = min(self.horizon, self.upto)
        cursor = self._cursor(lane)
        if cursor >= self.horizon or (self.group.ordered and lane.has_rows and self._full(lane)):
            return None
        span = self.group.span_after(cursor)
        where = Stretch(self.group, lane, span.binding, cursor, min(self.horizon, span.high), self.limit, self.now)
        found = ranges.find(self.tx, where, attempts=0, replay=0, because=error_columns(None))
        worth_it = found.members or found.holes or found.scanned >= limits.PASS_STRETCH or found.high == span.high
        if not worth_it:
            return None  # examining a short range without matches again is cheaper than recording it
        lease = self._lease_range(lane, found, attempts=1, replay=0, fresh=True)
        return replace(lease, simple=True) if isinstance(lease, LeaseRow) and self._simple(lane) else lease

    def _full(self, lane: LaneRow) -> bool:
        low, high = slice_of(lane.lane, self.group.lanes)
        blocked = self.tx.one(
            "claim.blocked",
            group_id=self.group.group_id,
            first_bucket=low,
            last_bucket=high,
            most=limits.BLOCKED_PER_LANE,
        )
        return blocked is not None and blocked.rows >= limits.BLOCKED_PER_LANE

    def _simple(self, lane: LaneRow) -> bool:
        """Return whether the group has only plain ranges: then the next claim can be made in one statement."""
        odd = lane.has_rows or lane.has_dated or lane.has_returned or self.group.circuit is not None
        return not odd and self.group.lanes == 1 and len(self.group.spans) == 1 and self.group.spans[0].everything

    def _lease_range(
        self, lane: LaneRow, found: Range, *, attempts: int, replay: int, fresh: bool
    ) -> LeaseRow | Passed:
        total = (lane.total or 0) + found.members + len(found.holes) if fresh else None
        earlier: Steps = ()
        if self.group.lived(replay, found.low):
            earlier = lives.earlier(self.tx, self.group, lane.lane, found.low, found.high, attempts - 1)
        lease = self._open(
            lane,
            members=found.members,
            binding=found.binding,
            low=found.low,
            high=found.high,
            holes=found.holes,
            attempts=attempts,
            replay=replay,
            fresh=fresh,
            total=total,
            found=found.found,
            whole=found.whole,
            last=found.members > 0,
            earlier=earlier,
        )
        if found.members:
            return lease
        self.tx.run("lease.end_empty", id=lease.id, upto=found.high, now=self.now)
        return Passed()

    def _open(
        self,
        lane: LaneRow,
        *,
        members: int,
        binding: int = 0,
        low: int | None = None,
        high: int | None = None,
        holes: list[int] | None = None,
        offsets: list[int] | None = None,
        attempts: int = 0,
        replay: int = 0,
        fresh: bool = False,
        total: int | None = None,
        found: str | None = None,
        whole: bool = False,
        last: bool = False,
        earlier: Steps = (),
    ) -> LeaseRow:
        """Write the lease; as the `last` statement it may also read the events and commit."""
        expires_at = self.now + timedelta(seconds=self.lease_seconds)
        params = {
            "group_id": self.group.group_id,
            "lane": lane.lane,
            "lanes": self.group.lanes,
            "binding": binding,
            "secret": secrets.randbits(TOKEN_BITS),
            "claimed_by": self.claimed_by,
            "now": self.now,
            "expires_at": expires_at,
            "attempts": attempts,
            "replay": replay,
            "members": members,
            "low": low,
            "high": high,
            "holes": holes or [],
            "offsets": offsets,
            "fresh": fresh,
            "total": total,
            "open_before": lane.open_ids,
            "run": self.run,
        }
        lease = LeaseRow(
            LeaseId(0),
            Token(0),
            self.group.stream,
            self.group.group_name,
            self.group.group_id,
            lane.lane,
            self.group.lanes,
            binding,
            low,
            high,
            holes or [],
            offsets,
            members,
            attempts,
            replay,
            self.claimed_by,
            self.now,
            expires_at,
            found,
            whole,
            ordered=self.group.ordered,
            left=lane.last - high if fresh and high is not None and self.group.lanes == 1 else None,
            earlier=earlier,
        )
        rows, events = (
            self._last("lease.open", lease, **params) if last else (self.tx.rows("lease.open", **params), None)
        )
        opened: OpenedRow = rows[0]
        return replace(lease, id=LeaseId(opened.id), token=Token(opened.token), events=events, wanted=opened.wanted)
