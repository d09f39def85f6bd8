"""How long jobs of a type stay: look at it, and change it while they run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.core.job import LEASE_SECONDS, JobName, check_keep_dead, check_keep_finished
from penstock.core.retry import Retry
from penstock.errors import InvalidInput
from penstock.log import audit, checks
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction


@dataclass(frozen=True, slots=True)
class JobTypeSettings:
    """A job type as stored: how long its jobs stay, in seconds; None is for ever."""

    type: str
    queue: str
    keep_finished: float | None
    keep_dead: float | None


def set_job_type(store: Store, name: JobName, finished: Any, dead: Any, by: str | None) -> JobTypeSettings:
    """Change how long jobs of a type stay; None leaves it as it is."""
    author = checks.author(by)
    given: dict[str, float | None] = {}
    if finished is not None:
        given["keep_finished"] = check_keep_finished(finished)
    if dead is not None:
        given["keep_dead"] = check_keep_dead(dead)
    if not given:
        raise InvalidInput("Nothing to change: give keep_finished or keep_dead.")
    which = {"queue": name.queue, "job_type": name.type}

    def work(tx: Transaction) -> JobTypeSettings:
        known = tx.one("jobs.type", **which)
        if known is None:  # nobody has declared it: it has the defaults
            _declare(tx, which)
        before = {} if known is None else {"keep_finished": known.keep_finished, "keep_dead": known.keep_dead}
        tx.run("jobs.keep", **which, **{"keep_finished": None, "keep_dead": None, **before, **given})
        audit.record(tx, author, "job_type", detail={**which, **given})
        row = tx.one("jobs.type", **which)
        assert row is not None
        return _of(row)

    return transact(store, work)


def job_types(store: Store) -> list[JobTypeSettings]:
    """Return the job types that were declared or changed."""
    return [_of(row) for row in look(store, lambda tx: tx.rows("jobs.types"))]


def _declare(tx: Transaction, which: dict[str, str]) -> None:
    nothing = dict.fromkeys(("schema", "max_in_flight", "rate_per_second", "keep_finished", "keep_dead"))
    tx.rows("jobs.declare", **which, **nothing, lease_seconds=LEASE_SECONDS, now=tx.now(), **asdict(Retry()))


def _of(row: Row) -> JobTypeSettings:
    return JobTypeSettings(row.job_type, row.queue, row.keep_finished, row.keep_dead)
