"""`penstock append`: one event, or a file of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import jsonl, output
from penstock.cli.arguments import Headers, Stream, parse_headers
from penstock.cli.command import WRITE, command, root
from penstock.cli.failures import Usage
from penstock.cli.jsonl import JsonLines
from penstock.cli.session import Session
from penstock.cli.times import TIME_HELP, parse_optional
from penstock.core.codec import JSON
from penstock.core.event import check_name
from penstock.errors import InvalidInput, MissingField, PenstockError
from penstock.log import new_events

if TYPE_CHECKING:
    from rich.progress import Progress


@command(root, "append", panel=WRITE, example="penstock append orders --type order.created --payload '{\"id\": 7}'")
def append(
    session: Session,
    *,
    stream: Stream,
    event_type: Annotated[str | None, typer.Option("--type", help="What happened, such as order.created.")] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON|@FILE|-", help="The payload, a file, or standard input.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The ordering key.")] = None,
    header: Headers = None,
    event_id: Annotated[str | None, typer.Option("--id", help="A uuid or ULID; the same id is stored once.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help=f"Not before: {TIME_HELP}.")] = None,
    partition_key: Annotated[str | None, typer.Option("--partition-key", help="Routes at the target.")] = None,
    content_type: Annotated[
        str | None, typer.Option("--content-type", help="For a payload that is not JSON: its bytes stay as they are.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--jsonl",
            metavar="FILE|-",
            help="Many events, one object to a line: payload, type, ordering_key, headers, event_id, available_at, …",
        ),
    ] = None,
) -> None:
    """Append one event, or all events of a file. One bad line refuses the whole file."""
    if source is not None:
        if any(one is not None for one in (payload, key, header, event_id, at, partition_key, content_type)):
            raise Usage("With --jsonl every line brings its own fields; only --type may be given for those without.")
        _append_file(session, stream, source, event_type)
        return
    fields = {
        "payload": read_payload(payload, content_type),
        "type": event_type,
        "ordering_key": key,
        "headers": parse_headers(header),
        "event_id": event_id,
        "available_at": parse_optional(at, "--at"),
        "partition_key": partition_key,
        "content_type": content_type,
    }
    new_events.one(stream, fields)  # before the log is opened, so that a mistake does not create one
    with session.open(create=True) as log:
        done = log.append(stream, fields.pop("payload"), **fields)
    document = {"stream": stream, "offset": done.offset, "event_id": done.event_id, "duplicate": done.duplicate}
    known = " (was there already)" if done.duplicate else ""
    session.answer(document, lambda: f"{stream}@{done.offset} {done.event_id}{known}")


def read_payload(given: str | None, content_type: str | None = None) -> Any:
    """The payload that an option names: JSON, a file, or standard input."""
    if given is None:
        raise MissingField("payload is missing: pass --payload.")
    raw: str | bytes = given
    try:
        if given == "-":
            raw = sys.stdin.buffer.read()
        elif given.startswith("@"):
            raw = Path(given[1:]).read_bytes()
    except OSError as error:
        raise InvalidInput(f"Cannot read {given.removeprefix('@')}: {error.strerror}.") from error
    if content_type is None or content_type == JSON:
        return jsonl.parse_json(raw, "The payload")
    return raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else raw


def _append_file(session: Session, stream: str, source: str, default_type: str | None) -> None:
    check_name(stream, "stream")
    with JsonLines(source, default_type) as lines, _progress(session) as progress:
        count = _check(stream, lines, progress)
        stored, duplicates = _store(session, stream, lines, count, progress)
    document = {"stream": stream, "appended": stored - duplicates, "duplicates": duplicates}
    known = f", {output.number(duplicates)} were there already" if duplicates else ""
    session.answer(document, lambda: f"{stream}: {output.number(stored - duplicates)} events appended{known}")


def _check(stream: str, lines: JsonLines, progress: Progress) -> int:
    count = 0
    task = progress.add_task("checking", total=lines.bytes)
    for batch in lines.batches():
        jsonl.check(stream, batch)
        count += len(batch)
        progress.update(task, completed=lines.position())
    return count


def _store(session: Session, stream: str, lines: JsonLines, count: int, progress: Progress) -> tuple[int, int]:
    stored = duplicates = 0
    task = progress.add_task("appending", total=count)
    with session.open(create=True) as log:
        for batch in lines.batches():
            try:
                duplicates += log.append_many(stream, [fields for _, fields in batch]).duplicates
            except PenstockError as error:
                done = f"{stored:,} events before line {batch[0][0]} are stored" if stored else "nothing was stored"
                error.message = f"{error.message} ({done}.)"
                raise
            stored += len(batch)
            progress.update(task, completed=stored)
    return stored, duplicates


@contextmanager
def _progress(session: Session) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    shown = session.progress_wanted()
    with Progress(*columns, console=output.error_console(), transient=True, disable=not shown) as progress:
        yield progress
