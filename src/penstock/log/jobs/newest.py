"""Jobs for people who look: a page at a time, at a cost that does not grow with the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.delivery import State
from penstock.core.job import GROUP, Job
from penstock.log import checks, deliveries, groups
from penstock.log.jobs import look as jobs
from penstock.log.selection import Selection
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction

NEWEST: Final = 2**63 - 1
LOOK: Final = 1_000  # jobs that are looked at for a page of finished ones


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs; `next` is where the following page begins, None after the last one.

    Those that wait or run come in the order of their submission, all others the newest first.
    """

    jobs: tuple[Job, ...]
    next: int | None
    ascending: bool


def page(
    store: Store, *, queue: str | None, job_type: str | None, state: str | None, cursor: int | None, limit: int
) -> JobPage:
    """Return a page of jobs of these kinds."""
    wanted = None if state is None else checks.state_of(state)
    most = checks.count(limit, "limit")
    at = None if cursor is None else min(checks.count(cursor, "cursor"), NEWEST)
    streams = [*jobs.streams_of(store, queue, None if job_type is None else [job_type])]
    if wanted is State.PENDING or wanted is State.CLAIMED:
        unfinished = wanted
        return look(store, lambda tx: _ascending(tx, streams, unfinished, at or 0, most))
    return look(store, lambda tx: _newest(tx, streams, wanted, NEWEST if at is None else at, most))


def _ascending(tx: Transaction, streams: list[str], state: State, after: int, most: int) -> JobPage:
    found: list[int] = []
    for stream in streams:
        if groups.find(tx, stream, GROUP) is not None:
            some = deliveries.page(tx, stream, GROUP, Selection(), state=state, after=after, limit=most)
            found += [one.offset for one in some]
        elif state is State.PENDING:
            found += [int(row.offset) for row in tx.rows("jobs.next", stream=stream, after=after, limit=most)]
    shown = sorted(found)[:most]
    return JobPage(tuple(jobs.show(tx, shown)), shown[-1] if len(shown) == most else None, True)


def _newest(tx: Transaction, streams: list[str], state: State | None, before: int, most: int) -> JobPage:
    if state is not State.PUBLISHED:
        shown = _offsets(tx, streams, state, before, most)
        return JobPage(_shown(tx, shown), shown[-1] if len(shown) == most else None, False)
    kept: list[Job] = []
    looked = 0
    while len(kept) < most and looked < LOOK:
        some = _offsets(tx, streams, None, before, most)
        if not some:
            return JobPage(tuple(kept), None, False)
        kept += [one for one in _shown(tx, some) if one.status is state]
        before, looked = some[-1], looked + len(some)
    return JobPage(tuple(kept), before, False)  # perhaps a few more than were asked for: none is left out


def _offsets(tx: Transaction, streams: list[str], state: State | None, before: int, most: int) -> list[int]:
    """Return where the newest jobs are, of those that are dead if that is the state, below an offset."""
    found: list[int] = []
    for stream in streams:
        if state is None:
            rows = tx.rows("jobs.newest", stream=stream, before=before, limit=most)
        else:
            rows = tx.rows("jobs.newest_dead", stream=stream, before=before, limit=most)
        found += [int(row.offset) for row in rows]
    return sorted(found, reverse=True)[:most]


def _shown(tx: Transaction, offsets: list[int]) -> tuple[Job, ...]:
    """Return the jobs at these offsets, the newest first."""
    return tuple(reversed(jobs.show(tx, offsets))) if offsets else ()
