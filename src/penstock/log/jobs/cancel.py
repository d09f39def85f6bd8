"""Cancel: a waiting job is given up at once, a running one is told with its next heartbeat."""

from __future__ import annotations

import uuid
from typing import Any

from penstock.core.delivery import State
from penstock.core.job import CANCELLED, GROUP, REPLACED, Job
from penstock.log import audit, checks, groups, kill, waiting
from penstock.log.cancel import ask
from penstock.log.jobs import look
from penstock.log.jobs.types import ensure_group
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def cancel(store: Store, job_id: Any, by: str | None) -> Job:
    """Cancel a job and return it as it is then; a finished one stays as it is."""
    author = checks.author(by)

    def work(tx: Transaction) -> Job:
        stream, offset = look.find(tx, job_id)
        ensure_group(tx, stream)
        group = groups.locked(tx, stream, GROUP)
        job = look.show(tx, [offset])[0]
        if job.status is State.PENDING:
            _give_up(tx, stream, job.id, CANCELLED, author)
        elif job.status is State.CLAIMED:
            ask(tx, group, [offset], CANCELLED, author)
            audit.record_for(tx, author, "cancel", group, 1, {"event_ids": [str(job.id)]})
        return look.show(tx, [offset])[0]

    return transact(store, work)


def replace_waiting(tx: Transaction, job_id: uuid.UUID) -> None:
    """Give a job up if it waits, because another one takes its place."""
    stream, offset = look.find(tx, job_id)
    ensure_group(tx, stream)
    groups.locked(tx, stream, GROUP)
    if look.show(tx, [offset])[0].status is State.PENDING:
        _give_up(tx, stream, job_id, REPLACED, checks.whoami())


def _give_up(tx: Transaction, stream: str, job_id: uuid.UUID, reason: str, by: str) -> None:
    group = groups.get(tx, stream, GROUP)
    found = waiting.find(tx, group, [job_id], reason)
    offsets = kill.bury(tx, group, found, reason, by)
    tx.run("jobs.name_reason", group_id=group.group_id, offsets=offsets, reason=reason)
    audit.record_for(tx, by, "cancel", group, 1, {"reason": reason, "event_ids": [str(job_id)]})
