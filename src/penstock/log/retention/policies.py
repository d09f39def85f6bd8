"""Policies: how long the events of a stream stay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core.event import check_name
from penstock.core.job import FOREVER, PREFIX, check_kept
from penstock.errors import InvalidInput
from penstock.log import audit, checks
from penstock.log.archives.places import NONE, check_place
from penstock.log.jobs.lifetime import JobTypeSettings, job_types
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long the events of a stream stay, in seconds, and how far that has been done."""

    stream: str
    keep: float
    keep_dead: float | None  # None: dead letters stay for ever
    archive: str | None  # only what is archived there is removed
    pruned_upto: int
    waits_for: str | None  # a group that has not finished what would go next, or "archive"
    set_at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class Retention:
    """All that says how long events and jobs stay."""

    streams: tuple[RetentionPolicy, ...]
    job_types: tuple[JobTypeSettings, ...]


def set_retention(
    store: Store, stream: str, keep: Any, keep_dead: Any, archive: str | None, by: str | None
) -> RetentionPolicy | None:
    """Set the policy of a stream; what is None stays as it is. `keep` for ever removes the policy: returns None."""
    if check_name(stream, "stream").startswith(PREFIX):
        raise InvalidInput("How long jobs stay is said of their type: see keep_finished and keep_dead of a job type.")
    author = checks.author(by)
    if keep is None and keep_dead is None and archive is None:
        raise InvalidInput("Nothing to change: give keep, keep_dead or archive.")
    seconds, dead_seconds = check_kept(keep, "keep"), check_kept(keep_dead, "keep_dead")
    if dead_seconds == 0:
        raise InvalidInput("keep_dead must be more than 0: dead letters would be gone before anybody sees them.")
    place = None if archive in (None, NONE) else check_place(str(archive))

    def work(tx: Transaction) -> RetentionPolicy | None:
        known = tx.one("policy.find", stream=stream)
        if keep == FOREVER:
            tx.run("policy.drop", stream=stream)
            audit.record(tx, author, "retention", stream=stream, detail={"keep": FOREVER})
            return None
        before = {} if known is None else {name: getattr(known, name) for name in ("keep", "keep_dead", "archive")}
        given = {"keep": (keep, seconds), "keep_dead": (keep_dead, dead_seconds), "archive": (archive, place)}
        settings = {name: before.get(name) if said is None else value for name, (said, value) in given.items()}
        if settings["keep"] is None:
            raise InvalidInput(f"{stream!r} has no policy: say how long its events stay with keep.")
        tx.run("policy.set", stream=stream, by=author, now=tx.now(), **settings)
        audit.record(tx, author, "retention", stream=stream, detail=settings)
        row = tx.one("policy.find", stream=stream)
        assert row is not None
        return _of(tx, row)

    return transact(store, work)


def retention(store: Store) -> Retention:
    """Return the policies of streams, and how long jobs of each type stay."""
    streams = look(store, lambda tx: [_of(tx, row) for row in tx.rows("policy.every")])
    return Retention(tuple(streams), tuple(job_types(store)))


def _of(tx: Transaction, row: Row) -> RetentionPolicy:
    pruned = tx.one("rewind.pruned", stream=row.stream)
    upto = 0 if pruned is None else int(pruned.upto)
    return RetentionPolicy(
        row.stream, row.keep, row.keep_dead, row.archive, upto, _waits_for(tx, row), row.set_at, row.by
    )


def _waits_for(tx: Transaction, row: Row) -> str | None:
    """Return what keeps the next event that is old enough: a group that has not got that far, or the archive."""
    from penstock.log.retention.apply import first_unfinished, old_enough

    upto = old_enough(tx, row.stream, row.keep)
    group = first_unfinished(tx, row.stream, int(row.swept), upto)
    if group is not None:
        return str(group.group_name)
    if row.archive is not None:
        archived = archived_upto(tx, row.stream, row.archive)
        if archived < upto and tx.one("source.nth", stream=row.stream, low=archived, high=upto, skip=0) is not None:
            return "archive"
    return None


def archived_upto(tx: Transaction, stream: str, place: str) -> int:
    """Return up to where a stream is archived in a place."""
    row = tx.one("policy.archived", stream=stream, place=place)
    return 0 if row is None or row.upto is None else int(row.upto)
