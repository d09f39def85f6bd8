"""Dead letters by kind of error, with what people say about each kind."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.core import limits
from penstock.core.event import check_text
from penstock.core.group import Group
from penstock.errors import InvalidInput, MissingField, TooLarge
from penstock.log import audit, checks, groups
from penstock.log.selection import NO_FINGERPRINT, Selection
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction

_HOURS = 24
_SAMPLES = 3
_SHORTEST = timedelta(microseconds=1)
_FRAME = re.compile(r'^  File "(?:.*[/\\])?([^"/\\]+)", line \d+, in (\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FingerprintStats:
    """A kind of error of a group's dead letters. Those without a fingerprint (imported ones) are a kind, `None`."""

    fingerprint: str | None
    error_code: str | None
    error_type: str | None
    message: str | None
    place: str | None  # where in the user's code, if a traceback is known
    count: int
    capped: bool  # there are more than are counted
    first_at: datetime
    last_at: datetime
    trend: tuple[int, ...]  # deaths in each of the last 24 hours, the last one last
    note: str | None
    owner: str | None
    muted: bool
    sample_event_ids: tuple[uuid.UUID, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a fingerprint stands for."""

    error_code: str | None
    error_type: str | None
    message: str | None
    place: str | None


def kind(store: Store, fingerprint: str) -> Kind | None:
    """Return what a fingerprint stands for, whether anything dead has it or not; None if it is not known."""
    row = look(store, lambda tx: tx.one("fingerprints.described", kinds=[check_text(fingerprint, "fingerprint")]))
    return None if row is None else Kind(row.error_code, row.error_type, row.message, place_of(row.traceback))


def fingerprints(store: Store, stream: str, group: str, which: Selection, limit: int) -> list[FingerprintStats]:
    """Return the kinds that were seen last, the largest first; of each the newest dead letters are counted."""
    checks.count(limit, "limit")

    def work(tx: Transaction) -> list[FingerprintStats]:
        known = groups.get(tx, stream, group)
        kinds = tx.rows("fingerprints.kinds", group_id=known.group_id, most=limits.KINDS)
        named = [one.fingerprint for one in kinds if one.fingerprint is not None]
        texts = {one.fingerprint: one for one in tx.rows("fingerprints.described", kinds=named)} if named else {}
        notes = {one.fingerprint: one for one in tx.rows("fingerprints.notes", group_id=known.group_id)}
        found: list[FingerprintStats] = []
        names = [one.fingerprint for one in kinds]
        while names and len(found) < limit:
            some, names = names[: limit - len(found)], names[limit - len(found) :]
            read = _read(tx, known, which, some)
            found += [_described(*one, texts, notes) for one in zip(some, *read, strict=True) if one[1] and one[2]]
        return sorted(found, key=lambda one: (-one.count, -one.last_at.timestamp()))

    return look(store, work)


def _read(
    tx: Transaction, group: Group, which: Selection, kinds: Sequence[str | None]
) -> tuple[list[list[Row]], list[list[Row]]]:
    """Read the counts of kinds and the newest of each, in one round trip; nothing of those that do not match."""
    now, filtered = tx.now(), which != Selection()
    hours = [now - timedelta(hours=ago) + _SHORTEST for ago in range(_HOURS, 0, -1)]
    most = limits.KINDS_COUNT + 1
    counts = {"now": now, "hours": hours, "most": most}
    samples = {"most": most if filtered else _SAMPLES, "samples": _SAMPLES}
    of_kinds: list[dict[str, Any]] = [{"group_id": group.group_id, "kind": kind, **which.params()} for kind in kinds]
    counting = "fingerprints.matching" if filtered else "fingerprints.counts"
    read = tx.together(
        *((counting, counts | one) for one in of_kinds), *(("fingerprints.samples", samples | one) for one in of_kinds)
    )
    return read[: len(kinds)], read[len(kinds) :]


def _described(
    kind: str | None,
    counted: Sequence[Row],
    samples: Sequence[Row],
    texts: Mapping[str, Row],
    notes: Mapping[str, Row],
) -> FingerprintStats:
    count = sum(int(row.deliveries) for row in counted)
    text = texts.get(kind) if kind is not None else None
    said = notes.get(kind or NO_FINGERPRINT)
    first = samples[0]
    return FingerprintStats(
        kind,
        first.error_code if text is None else text.error_code,
        first.error_type if text is None else text.error_type,
        first.last_error if text is None else text.message,
        None if text is None else place_of(text.traceback),
        min(count, limits.KINDS_COUNT),
        count > limits.KINDS_COUNT,
        first.first_at,
        first.dead_at,
        _trend(counted),
        None if said is None else said.note or None,
        None if said is None else said.owner or None,
        said is not None and bool(said.muted),
        tuple(row.event_id for row in samples),
    )


def _trend(counted: Sequence[Row]) -> tuple[int, ...]:
    """Return how many died in each of the last hours, the last one last."""
    hours = [0] * _HOURS
    for row in counted:
        if row.hour:
            hours[min(_HOURS, int(row.hour)) - 1] += int(row.deliveries)
    return tuple(hours)


def place_of(traceback: str | None) -> str | None:
    """Return the innermost frame of a traceback, as `screen.py:risk`."""
    frames = _FRAME.findall(traceback or "")
    return f"{frames[-1][0]}:{frames[-1][1]}" if frames else None


def note(
    store: Store,
    stream: str,
    group: str,
    fingerprint: str | None,
    *,
    note: str | None,
    owner: str | None,
    muted: bool | None,
    by: str | None,
) -> None:
    """Say something about a kind of error; what is not given stays, an empty text removes it."""
    author = checks.author(by)
    kind = check_text(fingerprint, "fingerprint") or NO_FINGERPRINT
    words = {"note": check_text(note, "note"), "owner": check_text(owner, "owner")}
    if muted is None and all(one is None for one in words.values()):
        raise MissingField("Say a note, an owner, or whether it is muted.")
    if muted is not None and not isinstance(muted, bool):
        raise InvalidInput(f"muted is true or false, not {str(muted)[:60]!r}.")
    for name, text in {**words, "fingerprint": kind}.items():
        if text is not None and len(text.encode()) > limits.NOTE_BYTES:
            raise TooLarge(f"The {name} has more than {limits.NOTE_BYTES:,} bytes.")

    def work(tx: Transaction) -> None:
        known = groups.get(tx, stream, group)
        params = {"group_id": known.group_id, "fingerprint": kind, "by": author, "now": tx.now()}
        tx.run("fingerprints.note", muted=muted, **words, **params)
        given = {name: value for name, value in {**words, "muted": muted}.items() if value is not None}
        audit.record(tx, author, "note_fingerprint", stream=stream, group=group, detail={"fingerprint": kind, **given})

    transact(store, work)
