"""`penstock fingerprint …`, `penstock export` and `penstock mend`: dead letters by kind, and mended by hand."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from penstock.cli import output
from penstock.cli.append import read_payload
from penstock.cli.arguments import By, Error, Group, Ids, Kind, Limit, Since, Stream, Type, Until
from penstock.cli.command import LOOK, OPERATE, command, fingerprint, root
from penstock.cli.failures import FAILED, Usage
from penstock.cli.jsonl import JsonLines, Numbered
from penstock.cli.operate import chosen_ids, filter_of, parsed_ids
from penstock.cli.operations import Why
from penstock.cli.session import Session
from penstock.core.event import parse_event_id
from penstock.errors import InvalidInput, InvalidPayload, MissingField, PayloadUnchanged, PenstockError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.fingerprints import FingerprintStats
    from penstock.log.log import Log

_BARS = "▁▂▃▄▅▆▇█"


@command(fingerprint, "list", example="penstock fingerprint list orders fraud")
def list_fingerprints(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    error: Error = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
) -> None:
    """List the kinds of errors of a group's dead letters, with counts, trend and notes."""
    which = filter_of(None, event_type, since, until, error)
    with session.open() as log:
        found = log.fingerprints(stream, group, limit=limit, **which)
    session.answer({"fingerprints": [asdict(one) for one in found]}, lambda: _table(found))


@command(fingerprint, "note", example="penstock fingerprint note orders fraud 1-2199966c52 --note 'fix in 4.2'")
def note(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    kind: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="The kind of error; `none` without one.", show_default=False)
    ],
    words: Annotated[str | None, typer.Option("--note", help="What is known about it; '' removes it.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Who looks after it; '' removes it.")] = None,
    muted: Annotated[bool | None, typer.Option("--mute/--unmute", help="Whether it is nobody's worry.")] = None,
    by: By = None,
) -> None:
    """Say something about a kind of error."""
    with session.open() as log:
        log.note_fingerprint(stream, group, kind, note=words, owner=owner, muted=muted, by=by)
    document = {"stream": stream, "group": group, "fingerprint": kind, "note": words, "owner": owner, "muted": muted}
    session.answer(document, lambda: f"{kind} of {group} on {stream}: noted")


def _table(found: list[FingerprintStats]) -> RenderableType:
    if not found:
        return "There are no dead letters."
    rows = (
        (
            one.fingerprint or "none",
            output.cell(one.place or one.error_type or one.error_code, 40),
            f"{one.count:,}{'+' if one.capped else ''}",
            output.age(one.last_at),
            output.cell(" ".join(filter(None, ("muted" if one.muted else "", one.owner, one.note))), 40),
            output.cell(one.message, 60),
            _spark(one.trend),
            output.age(one.first_at),
        )
        for one in found
    )
    return output.table(("fingerprint", "where…", ">dead", "last", "note…?", "message…?", "24 h?", "first?"), rows)


def _spark(trend: tuple[int, ...]) -> str:
    most = max(trend)
    return "".join("_" if not one else _BARS[(one * (len(_BARS) - 1)) // most] for one in trend)


@command(root, "export", panel=LOOK, example="penstock export orders fraud --error KeyError --out dead.jsonl")
def export(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Where to; else standard output.", show_default=False)
    ] = None,
    ids: Ids = None,
    error: Error = None,
    kind: Kind = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Write dead letters with payload and error as JSON Lines; mend them, and send them again with `mend`."""
    which = filter_of(ids, event_type, since, until, error, kind)
    with session.open() as log:
        if "event_ids" in which:
            which["event_ids"] = chosen_ids(log, stream, which["event_ids"])
        found = log.export(stream, group, **which)
        if out is None and session.as_json:
            listed = list(found)
            session.answer({"count": len(listed), "dead_letters": listed}, lambda: "")
        elif out is None:
            _write(sys.stdout.buffer, found)
        else:
            count = _to_file(out, found)
            session.answer({"count": count, "out": out}, lambda: f"{out}: {count:,} dead letters")


def _to_file(out: str, found: Iterable[dict[str, Any]]) -> int:
    try:
        with Path(out).open("wb") as file:
            return _write(file, found)
    except OSError as error:
        raise InvalidInput(f"Cannot write {out}: {error.strerror}.") from error


def _write(file: Any, found: Iterable[dict[str, Any]]) -> int:
    count = 0
    for one in found:
        file.write(orjson.dumps(one, default=str) + b"\n")
        count += 1
    file.flush()
    return count


@command(root, "mend", panel=OPERATE, example="penstock mend orders fraud --jsonl dead.jsonl --reason 'wrong currency'")
def mend(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    ids: Ids = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON|@FILE|-", help="The mended payload of one event.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--jsonl", metavar="FILE|-", help="Mended lines of `export`.", show_default=False)
    ] = None,
    into: Annotated[str | None, typer.Option("--into", metavar="STREAM", help="Append to another stream.")] = None,
    reason: Why = None,
    by: By = None,
) -> None:
    """Send dead letters again with a mended payload; each old one leaves the queue."""
    more: dict[str, Any] = {"into": into, "reason": reason, "by": by}
    if (source is None) == (not ids):
        raise Usage("Name one event with --id and --payload, or a file with --jsonl.")
    if source is not None:
        _mend_lines(session, stream, group, source, more)
        return
    named = parsed_ids(ids)
    if len(named) != 1 or payload is None:
        raise Usage("Mend one event at a time: --id once, and --payload.")
    given = _body(read_payload(payload))
    with session.open() as log:
        (one,) = chosen_ids(log, stream, named)
        new = log.mend(stream, group, one, given, **more)
    document = {"event_id": one, "new_event_id": new.event_id, "offset": new.offset, "duplicate": new.duplicate}
    session.answer(document, lambda: f"{one} is mended: {new.event_id} at offset {new.offset}")


def _mend_lines(session: Session, stream: str, group: str, source: str, more: dict[str, Any]) -> None:
    """Check every line, then mend one after the other; a line that is refused changes nothing."""
    counts = {"mended": 0, "unchanged": 0, "repeated": 0}
    refused: list[dict[str, Any]] = []
    with JsonLines(source, None) as lines:
        for batch in lines.batches():
            for one in batch:
                _checked(stream, group, one)
        with session.open() as log:
            for batch in lines.batches():
                for number, fields in batch:
                    _mend_line(log, stream, group, number, fields, more, counts, refused)
    document = {"stream": stream, "group": group, **counts, "refused": refused}
    session.answer(document, lambda: _mended(stream, group, counts, refused))
    if refused:
        raise typer.Exit(FAILED)


def _mend_line(
    log: Log,
    stream: str,
    group: str,
    number: int,
    fields: dict[str, Any],
    more: dict[str, Any],
    counts: dict[str, int],
    refused: list[dict[str, Any]],
) -> None:
    try:
        new = log.mend(stream, group, fields["event_id"], _body(fields["payload"]), **more)
        counts["repeated" if new.duplicate else "mended"] += 1
    except PayloadUnchanged:
        counts["unchanged"] += 1
    except PenstockError as error:
        refused.append({"line": number, "code": error.code, "message": error.message})


def _checked(stream: str, group: str, numbered: Numbered) -> None:
    """Refuse a line that cannot be mended, before anything is."""
    number, fields = numbered
    try:
        if fields.get("payload") is None:
            raise MissingField("payload is missing.")
        parse_event_id(fields.get("event_id"))
        _body(fields["payload"])
        for name, expected in (("stream", stream), ("group", group)):
            if fields.get(name, expected) != expected:
                raise InvalidInput(f"it belongs to the {name} {fields[name]!r}, not to {expected!r}.")
    except InvalidInput as error:
        raise type(error)(f"Line {number}: {error.message}") from error


def _body(payload: Any) -> Any:
    """JSON as it is, bytes from `{"base64": …}`."""
    if not isinstance(payload, dict) or payload.keys() != {"base64"}:
        return payload
    try:
        return base64.b64decode(payload["base64"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidPayload("What is called base64 is not.") from error


def _mended(stream: str, group: str, counts: dict[str, int], refused: list[dict[str, Any]]) -> str:
    lines = [f"{group} on {stream}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items())]
    return "\n".join([*lines, *(f"line {one['line']}: {one['message']}" for one in refused)])
