"""The loop of an import: read the source, store batches of it, settle what was finished, and count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.core.delivery import State
from penstock.core.imported import Found, Taken
from penstock.core.limits import IMPORT_BATCH, IMPORT_BYTES, IMPORT_WAIT_SECONDS
from penstock.imports import entries
from penstock.imports.source import GroupCount, Source
from penstock.imports.tally import Tally, key_of
from penstock.log.imports import batch, record, settle
from penstock.log.imports.record import Import
from penstock.log.log import Log

Show = Callable[[str, int, int | None], None]  # what is done, how much of it, and how much there is


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group: its deliveries in the source, those taken and those left out, and as the log counts them now."""

    stream: str
    group: str
    source: dict[str, int]
    taken: dict[str, int]
    left: dict[str, int]
    now: dict[str, int] | None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an import, or of a dry run of one."""

    system: str
    source: str
    dry_run: bool
    before: bool  # it was complete before; nothing was done
    tally: Tally
    groups: list[GroupReport]
    notes: dict[str, Any]  # what else the source says of itself

    @property
    def complete(self) -> bool:
        """Whether everything that the source counted was taken, or left out for a reason."""
        return all(_summed(one.taken, one.left) == _summed(one.source, {}) for one in self.groups)


def run(log: Log, source: Source, *, skip_published: bool, by: str, show: Show) -> Report:
    """Import a source, from where an earlier run stopped."""
    found = source.count()
    options = {**source.options, "skip_published": skip_published}
    one = record.begin(log.store, source.system, source.name, options, source.targets, by)
    if one.state == record.DONE and source.resumes:
        return _report(log, source, found, Tally(one.counts), before=True)
    if one.state != record.SETTLING or not source.resumes:
        one = _copy(log, source, one, found, skip_published, show)
    while not (done := settle.settle_next(log.store, one)).done:
        show("waiting for an open append" if done.waits else "settling", done.settled, done.end or None)
        if done.waits:
            time.sleep(IMPORT_WAIT_SECONDS)
    return _report(log, source, found, Tally(one.counts))


def dry_run(source: Source, *, skip_published: bool, show: Show) -> Report:
    """Read and check everything, and store nothing."""
    found, tally, now = source.count(), Tally({}), datetime.now(UTC)
    total = _entries(found)
    for one in source.read(None):
        _take(source, one, tally, now, skip_published)
        if tally.entries % IMPORT_BATCH == 0:
            show("checking", tally.entries, total)
    return _report(None, source, found, tally)


def _copy(log: Log, source: Source, one: Import, found: list[GroupCount], skip_published: bool, show: Show) -> Import:
    """Store the source batch by batch; a position is stored with the events that lead up to it."""
    tally = Tally(one.counts if source.resumes else {})
    total, now = _entries(found), record.now(log.store)
    behind = one.position if source.resumes else None
    for listed, last in _batches(source, behind):
        taken = [made for entry in listed if (made := _take(source, entry, tally, now, skip_published)) is not None]
        position = listed[-1].position if listed else one.position
        counts = {**tally.stored(), **source.notes}
        stored = batch.store_batch(log.store, one, taken, position, counts, last=last)
        one, tally.known = stored.after, tally.known + stored.known
        show("copying", tally.entries, total)
    return one


def _take(source: Source, entry: Found, tally: Tally, now: datetime, skip_published: bool) -> Taken | None:
    """Count an entry, and return what to store of it."""
    if skip_published and entry.states and all(was.state is State.PUBLISHED for was in entry.states.values()):
        tally.skip(entry)
        return None
    made = entries.make(source, entry, now)
    if made.why is None:
        tally.copy(entry)
    else:
        tally.reject(entry, made.why)
    return made.taken


def _batches(source: Source, after: Any) -> Iterator[tuple[list[Found], bool]]:
    """Yield entries in pieces for one transaction each, and whether a piece is the last; it may be empty."""
    listed: list[Found] = []
    size = 0
    for entry in source.read(after):
        if len(listed) >= IMPORT_BATCH or size >= IMPORT_BYTES:
            yield listed, False
            listed, size = [], 0
        listed.append(entry)
        payload = entry.fields.get("payload")
        size += len(payload) if isinstance(payload, bytes) else 0
    yield listed, True


def _entries(found: list[GroupCount]) -> int | None:
    """Return about how many entries there are: as many as the largest group of each stream has."""
    by_stream: dict[str, int] = {}
    for one in found:
        by_stream[one.stream] = max(by_stream.get(one.stream, 0), sum(one.states.values()))
    return sum(by_stream.values()) or None


def _report(log: Log | None, source: Source, found: list[GroupCount], tally: Tally, *, before: bool = False) -> Report:
    ours = {} if log is None else {(one.stream, one.group): one for one in log.stats().groups}
    groups = []
    for one in found:
        key, now = key_of(one.stream, one.group), ours.get((one.stream, one.group))
        groups.append(
            GroupReport(
                one.stream,
                one.group,
                {state.value: count for state, count in one.states.items()},
                dict(tally.taken.get(key, {})),
                dict(tally.left.get(key, {})),
                None
                if now is None
                else {"PENDING": now.pending, "CLAIMED": now.claimed, "PUBLISHED": now.published, "DEAD": now.dead},
            )
        )
    return Report(source.system, source.name, log is None, before, tally, groups, dict(source.notes))


def _summed(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    found = {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}
    return {name: count for name, count in found.items() if count}
