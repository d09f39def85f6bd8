"""Look at jobs: one, many, or wait for one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.delivery import State
from penstock.core.event import parse_event_id
from penstock.core.job import GROUP, PREFIX, Job, check_queue, name_of, settings_of
from penstock.errors import UnknownJob
from penstock.log import checks, deliveries, groups, read
from penstock.log.selection import Selection
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction

FINISHED = (State.PUBLISHED, State.DEAD)
_WAIT_SECONDS = 0.25  # at most, between two looks at a job that is waited for


def find(tx: Transaction, job_id: Any) -> tuple[str, int]:
    """Return the stream and the offset of a job; `UnknownJob` if there is none with this id."""
    event_id = parse_event_id(job_id)
    row = tx.one("jobs.find", event_id=event_id)
    if row is None:
        raise UnknownJob(f"There is no job {event_id}.")
    return str(row.stream), int(row.offset)


def job(store: Store, job_id: Any) -> Job:
    """Return one job."""
    return look(store, lambda tx: show(tx, [find(tx, job_id)[1]])[0])


def show(tx: Transaction, offsets: Sequence[int]) -> list[Job]:
    """Return the jobs at these offsets, in their order."""
    return [_job(row) for row in tx.rows("jobs.show", offsets=list(offsets))]


def jobs(
    store: Store, *, queue: str | None, job_type: str | None, state: str | None, after: int, limit: int
) -> list[Job]:
    """Return jobs in offset order; pass the last one's offset as `after` for the next page."""
    wanted = None if state is None else checks.state_of(state)
    checks.count(after, "after")
    checks.count(limit, "limit")
    streams = [*streams_of(store, queue, None if job_type is None else [job_type])]

    def work(tx: Transaction) -> list[Job]:
        found: list[int] = []
        for stream in streams:
            found += _offsets(tx, stream, wanted, after, limit)
        return show(tx, sorted(found)[:limit])

    return look(store, work)


def _offsets(tx: Transaction, stream: str, state: State | None, after: int, limit: int) -> list[int]:
    if groups.find(tx, stream, GROUP) is not None:
        page = deliveries.page(tx, stream, GROUP, Selection(), state=state, after=after, limit=limit)
        return [one.offset for one in page]
    if state not in (None, State.PENDING):
        return []
    return [int(row.offset) for row in tx.rows("jobs.next", stream=stream, after=after, limit=limit)]


def streams_of(store: Store, queue: str | None, types: Sequence[str] | None) -> Iterator[str]:
    """Yield the streams of these types and this queue (default: all) that have ever had a job."""
    if queue is not None:
        check_queue(queue)
    for stream in read.streams(store):
        name = name_of(stream) if stream.startswith(PREFIX) else None
        if name is not None and queue in (None, name.queue) and (types is None or name.type in types):
            yield stream


def wait(store: Store, job_id: Any, timeout: float | None) -> Job:
    """Return the job when it is finished, or as it is when the time is up."""
    give_up = None if timeout is None else time.monotonic() + checks.seconds(timeout, "timeout")
    pause = 0.005
    while True:
        found = job(store, job_id)
        left = pause if give_up is None else give_up - time.monotonic()
        if found.status in FINISHED or left <= 0:
            return found
        time.sleep(min(pause, left))
        pause = min(2 * pause, _WAIT_SECONDS)


def _job(row: Row) -> Job:
    name = name_of(row.stream)
    assert name is not None
    state = State.PENDING if row.state is None else State(row.state)
    settings = settings_of(codec.decode_object(row.metadata))
    claimed = state is State.CLAIMED
    return Job(
        id=row.event_id,
        type=name.type,
        queue=name.queue,
        priority=name.priority,
        payload=bytes(row.payload),
        status=state,
        attempts=row.attempts or 0,
        failures=row.failures or 0,
        max_attempts=settings.get("max_attempts", row.max_attempts),
        worker=row.claimed_by if claimed else None,
        claimed_at=row.claimed_at if claimed else None,
        heartbeat_at=(row.heartbeat_at or row.claimed_at) if claimed else None,
        available_at=row.available_at,
        created_at=row.created_at,
        finished_at=row.published_at or row.dead_at,
        progress=row.progress,
        message=row.message,
        result=None if row.result is None else orjson.loads(row.result),
        error=row.last_error,
        error_code=row.error_code,
        reason=row.reason,
        headers=codec.decode_headers(row.headers),
        expires_at=row.expires_at if claimed else None,
        offset=row.offset,
    )
