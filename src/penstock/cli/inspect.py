"""Looking, which changes nothing: streams, events, one event in full, dead letters, stats."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import near, output, records
from penstock.cli.arguments import After, Error, Group, Limit, Since, Stream, Type, Until, parse_event
from penstock.cli.command import LOOK, command, root
from penstock.cli.completion import fixed, groups
from penstock.cli.failures import Usage
from penstock.cli.session import Session
from penstock.cli.times import parse_optional
from penstock.core.batch import Event
from penstock.core.delivery import State
from penstock.core.event import check_name
from penstock.errors import UnknownEvent

if TYPE_CHECKING:
    from penstock.log.deliveries import DeliveryRecord
    from penstock.log.log import Log

_PAGE = 1_000


@command(root, "streams", panel=LOOK, example="penstock streams")
def streams(session: Session) -> None:
    """List the streams, with the number of their events and groups."""
    with session.open() as log:
        stats = log.stats()
    found = [
        {"stream": one.stream, "events": one.events, "groups": sum(g.stream == one.stream for g in stats.groups)}
        for one in stats.streams
    ]
    rows = [(output.cell(one["stream"]), f"{one['events']:,}", str(one["groups"])) for one in found]
    empty = "There are no streams yet; `penstock append` makes one."
    shown = output.table(("stream…", ">events", ">groups"), rows) if rows else empty
    session.answer({"streams": found}, lambda: shown)


@command(root, "events", panel=LOOK, example="penstock events orders --group fraud --state DEAD --since -1h")
def events(
    session: Session,
    *,
    stream: Stream,
    group: Annotated[
        str | None,
        typer.Option("--group", help="As this group sees them: with state and errors.", autocompletion=groups),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only in this state: {', '.join(State)}.",
            autocompletion=fixed(*State),
        ),
    ] = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    error: Error = None,
    limit: Limit = 100,
    after: After = 0,
) -> None:
    """List the events of a stream in offset order, or a group's deliveries of them."""
    begin, end = parse_optional(since, "--since"), parse_optional(until, "--until")
    if group is None and (state or error):
        raise Usage("An event has a state and an error only in a group: name it with --group.")
    with session.open() as log:
        if group is None:
            read = _read(log, check_name(stream, "stream"), event_type, since=begin, until=end, after=after)
            plain = [event for _, event in zip(range(limit), read, strict=False)]
            documents, shown = [output.event_document(one) for one in plain], records.event_table(plain)
        else:
            wanted = None if state is None else state.upper()
            found = log.deliveries(
                stream,
                group,
                state=wanted,
                type=event_type,
                since=begin,
                until=end,
                error=error,
                after=after,
                limit=limit,
            )
            documents, shown = [records.delivery_document(one) for one in found], records.delivery_table(found)
        meant = "" if documents or after or session.as_json else near.stream_like(log, stream)
    more = documents[-1]["offset"] if len(documents) == limit else None
    document = {"stream": stream, "group": group, "events": documents, "next_after": more}
    note = [output.styled(f"There may be more: --after {more}", "dim")] if more else []
    session.answer(document, lambda: output.stacked(shown, *note, *([meant] if meant else [])))


def _read(
    log: Log, stream: str, event_type: str | None, *, since: datetime | None, until: datetime | None, after: int
) -> Iterator[Event]:
    if since is not None:
        after = max(after, log.position(stream, since))
    while page := log.read(stream, after=after, limit=_PAGE):
        for event in page:
            created = event.created_at
            in_time = (since is None or created >= since) and (until is None or created < until)
            if in_time and event_type in (None, event.event_type):
                yield event
        if until is not None and all(event.created_at >= until for event in page):
            return  # created_at follows the offset closely; a whole page behind the end is the end
        after = page[-1].offset


@command(root, "show", panel=LOOK, example="penstock show orders 42")
def show(
    session: Session,
    *,
    stream: Stream,
    which: Annotated[str, typer.Argument(metavar="EVENT_ID|OFFSET", help="The event.", show_default=False)],
) -> None:
    """Show one event, its delivery in every group, its history, and the tracebacks of its errors."""
    check_name(stream, "stream")
    wanted = parse_event(which)
    with session.open() as log:
        event = log.event(stream, wanted)
        deliveries = list(_everywhere(log, event))
        document = {
            "event": output.event_document(event),
            "deliveries": [records.progress_document(one) for one in deliveries],
        }
        session.answer(document, lambda: records.event_in_full(event, deliveries))


def _everywhere(log: Log, event: Event) -> Iterator[DeliveryRecord]:
    for group in log.groups(event.stream):
        try:
            yield log.delivery(event.stream, group.group_name, event.offset)
        except UnknownEvent:
            continue  # the group's binding does not cover it


@command(root, "dead", panel=LOOK, example="penstock dead orders fraud")
def dead(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    error: Error = None,
    limit: Limit = 100,
) -> None:
    """List the dead letters of a group, the newest first."""
    which = {
        "type": event_type,
        "since": parse_optional(since, "--since"),
        "until": parse_optional(until, "--until"),
        "error": error,
    }
    with session.open() as log:
        found = dead_letters(log, stream, group, limit=limit, **which)
    document = {"stream": stream, "group": group, "dead": [records.delivery_document(one) for one in found]}
    session.answer(document, lambda: records.delivery_table(found))


def dead_letters(log: Log, stream: str, group: str, *, limit: int = 100, **which: Any) -> list[DeliveryRecord]:
    """The newest dead letters of a group, the newest first."""
    newest: deque[DeliveryRecord] = deque(maxlen=limit)
    after = 0
    while page := log.deliveries(stream, group, state=State.DEAD, after=after, limit=_PAGE, **which):
        newest.extend(page)
        after = page[-1].offset
    return sorted(newest, key=lambda one: (one.dead_at or one.created_at, one.offset), reverse=True)


@command(root, "stats", panel=LOOK, example="penstock stats --json")
def stats(session: Session) -> None:
    """Counts per state, lag, age and rate of every group."""
    with session.open() as log:
        found = log.stats()
    document = asdict(found) | {"job_types": [asdict(one) for one in found.job_types]}
    session.answer(document, lambda: records.stats_tables(found))
