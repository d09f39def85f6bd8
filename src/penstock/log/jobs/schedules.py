"""Schedules: jobs that are submitted by the clock. Any number of tickers submit a run once, so there is no leader."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from penstock.core import codec, cron
from penstock.core.event import check_name
from penstock.core.job import JobName, check_job_name, check_max_attempts
from penstock.core.observe import SchedulesRan
from penstock.errors import UnknownSchedule
from penstock.log import audit, checks, outbox
from penstock.log.jobs import look
from penstock.log.jobs.submit import new_job
from penstock.log.jobs.types import check_payloads
from penstock.log.transact import look as looking
from penstock.log.transact import transact
from penstock.stores.base import Row, Store, Transaction

_NAMESPACE: Final = uuid.UUID("2a3c1c50-6f1c-5b6e-8d52-0d9a5d5d9f11")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as stored."""

    name: str
    cron: str
    tz: str
    type: str
    queue: str
    priority: int
    payload: Any
    max_attempts: int | None
    suspended: bool
    created_at: datetime
    next_at: datetime
    last_at: datetime | None  # the time of the last run that was submitted
    last_job: uuid.UUID | None

    def next_runs(self, count: int = 5) -> list[datetime]:
        """Return the next times at which it runs."""
        if self.suspended:
            return []
        return [self.next_at, *cron.next_runs(self.cron, self.tz, self.next_at, count - 1)][:count]


def put(
    store: Store, name: str, expression: str, name_of_job: JobName, payload: Any, max_attempts: int | None, tz: str
) -> Schedule:
    """Create a schedule, or change it."""
    check_name(name, "name")
    attempts, encoded = check_max_attempts(max_attempts), codec.encode_json(payload)
    check_payloads(store, name_of_job, [encoded])

    def work(tx: Transaction) -> Schedule:
        now = tx.now()
        (row,) = tx.rows(
            "schedule.put",
            name=name,
            cron=expression,
            tz=tz,
            job_type=name_of_job.type,
            queue=name_of_job.queue,
            priority=name_of_job.priority,
            payload=encoded.decode(),
            max_attempts=attempts,
            now=now,
            next_at=cron.first_after(expression, tz, now),
        )
        return _schedule(row)

    return transact(store, work)


def listed(store: Store) -> list[Schedule]:
    """Return all schedules by name."""
    return [_schedule(row) for row in looking(store, lambda tx: tx.rows("schedule.all", name=None))]


def suspend(store: Store, name: str, suspended: bool, by: str | None) -> Schedule:
    """Suspend a schedule, or resume it: what it missed meanwhile is not made up for."""
    author = checks.author(by)

    def work(tx: Transaction, one: Schedule) -> None:
        again = one.next_at if suspended else cron.first_after(one.cron, one.tz, tx.now())
        tx.run("schedule.suspend", name=name, suspended=suspended, next_at=again)
        audit.record(tx, author, "suspend_schedule" if suspended else "resume_schedule", detail={"schedule": name})

    return _changed(store, name, work)


def delete(store: Store, name: str, by: str | None) -> None:
    """Delete a schedule; its jobs stay."""
    author = checks.author(by)

    def work(tx: Transaction) -> None:
        _find(tx, name)
        tx.run("schedule.delete", name=name)
        audit.record(tx, author, "delete_schedule", detail={"schedule": name})

    transact(store, work)


def run_now(store: Store, name: str, by: str | None) -> uuid.UUID:
    """Submit a run now, besides those of the schedule; returns the job's id."""
    author = checks.author(by)

    def work(tx: Transaction) -> uuid.UUID:
        one = _find(tx, name)
        job = _submit(store, tx, one, None)
        audit.record(tx, author, "run_schedule", detail={"schedule": name, "job": str(job)})
        return job

    return transact(store, work)


def tick(store: Store) -> list[uuid.UUID]:
    """Submit the runs that are due: of several that were missed, the latest. None while its last job is unfinished."""

    def work(tx: Transaction) -> list[uuid.UUID]:
        now = tx.now()
        submitted = []
        for one in map(_schedule, tx.rows("schedule.due", now=now)):
            if one.last_job is not None and _unfinished(tx, one.last_job):
                continue
            moment = cron.latest_upto(one.cron, one.tz, one.next_at, now)
            job = _submit(store, tx, one, moment)
            again = cron.first_after(one.cron, one.tz, moment)
            tx.run("schedule.ran", name=one.name, next_at=again, last_at=moment, last_job=job)
            submitted.append(job)
        if submitted:
            tx.observed.append(SchedulesRan(len(submitted)))
        return submitted

    if not looking(store, lambda tx: tx.rows("schedule.all", name=None)):
        return []
    return transact(store, work)


def _unfinished(tx: Transaction, job: uuid.UUID) -> bool:
    row = tx.one("jobs.find", event_id=job)
    return row is not None and look.show(tx, [row.offset])[0].status not in look.FINISHED


def _submit(store: Store, tx: Transaction, one: Schedule, moment: datetime | None) -> uuid.UUID:
    """Store the job of a run. Its id follows from its time, so that it is stored once, whoever submits it."""
    chosen = None if moment is None else uuid.uuid5(_NAMESPACE, f"{one.name} {moment.isoformat()}")
    fields = {"payload": one.payload, "max_attempts": one.max_attempts, "event_id": chosen}
    event, given = new_job(check_job_name(one.type, one.queue, one.priority), fields)
    stored = outbox.run(tx, outbox.steps(store, event, given))
    tx.wake()
    return stored.event_id


def _changed(store: Store, name: str, change: Callable[[Transaction, Schedule], None]) -> Schedule:
    def work(tx: Transaction) -> Schedule:
        change(tx, _find(tx, name))
        return _find(tx, name)

    return transact(store, work)


def _find(tx: Transaction, name: str) -> Schedule:
    row = tx.one("schedule.one", name=check_name(name, "name"))
    if row is None:
        raise UnknownSchedule(f"There is no schedule {name!r}.")
    return _schedule(row)


def _schedule(row: Row) -> Schedule:
    return Schedule(
        row.name,
        row.cron,
        row.tz,
        row.job_type,
        row.queue,
        row.priority,
        orjson.loads(row.payload),
        row.max_attempts,
        bool(row.suspended),
        row.created_at,
        row.next_at,
        row.last_at,
        None if row.last_job is None else uuid.UUID(str(row.last_job)),
    )
