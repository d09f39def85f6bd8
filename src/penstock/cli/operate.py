"""What operators do to deliveries: redrive, replay, purge, kill, reschedule, skip; and reap."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import near
from penstock.cli.arguments import (
    LARGEST,
    By,
    DryRun,
    Error,
    Group,
    Ids,
    Kind,
    Since,
    Stream,
    Type,
    Until,
    Yes,
    parse_event,
)
from penstock.cli.command import OPERATE, command, root
from penstock.cli.failures import Usage
from penstock.cli.operations import Canary, Care, Detach, Rate, StopOnReturn, Why, move_many
from penstock.cli.session import Session
from penstock.cli.times import TIME_HELP, parse_optional, parse_time
from penstock.core.event import check_key
from penstock.errors import FilterNeeded, MissingField

if TYPE_CHECKING:
    from penstock.log.log import Log, Moved

Everything = Annotated[bool, typer.Option("--all", help="All of them, without a filter.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why; it becomes the delivery's error.")]
At = Annotated[str, typer.Option("--at", metavar="TIME", help=f"When it becomes due: {TIME_HELP}.")]


@command(root, "redrive", panel=OPERATE, example="penstock redrive orders fraud --error TimeoutError --dry-run")
def redrive(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    ids: Ids = None,
    error: Error = None,
    kind: Kind = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    canary: Canary = None,
    rate: Rate = None,
    stop_on_return: StopOnReturn = None,
    detach: Detach = False,
    reason: Why = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Give dead letters another life: DEAD → PENDING, with a fresh budget of attempts."""
    which = filter_of(ids, event_type, since, until, error, kind)
    care = Care(canary, rate, stop_on_return, detach, reason)
    _move(session, "redrive", stream, group, which, care, everything=everything, dry_run=dry_run, yes=yes, by=by)


@command(root, "purge", panel=OPERATE, example="penstock purge orders fraud --error KeyError --yes")
def purge(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    everything: Everything = False,
    ids: Ids = None,
    error: Error = None,
    kind: Kind = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    rate: Rate = None,
    detach: Detach = False,
    reason: Why = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Take dead letters out of the queue for good. They stay DEAD, hidden, until prune removes their events."""
    which = filter_of(ids, event_type, since, until, error, kind)
    care = Care(rate=rate, detach=detach, reason=reason)
    _move(session, "purge", stream, group, which, care, everything=everything, dry_run=dry_run, yes=yes, by=by)


@command(root, "replay", panel=OPERATE, example="penstock replay orders fraud --since -1h --dry-run")
def replay(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    ids: Ids = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    canary: Canary = None,
    rate: Rate = None,
    stop_on_return: StopOnReturn = None,
    detach: Detach = False,
    reason: Why = None,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Deliver again what was finished: PUBLISHED → PENDING."""
    which = filter_of(ids, event_type, since, until)
    care = Care(canary, rate, stop_on_return, detach, reason)
    _move(session, "replay", stream, group, which, care, everything=everything, dry_run=dry_run, yes=yes, by=by)


def filter_of(
    ids: Sequence[str] | None,
    event_type: str | None,
    since: str | None,
    until: str | None,
    error: str | None = None,
    kind: str | None = None,
) -> dict[str, Any]:
    """The filters that were given."""
    given = {
        "event_ids": [parse_event(one) for one in ids] if ids else None,
        "type": event_type,
        "since": parse_optional(since, "--since"),
        "until": parse_optional(until, "--until"),
        "error": error,
        "fingerprint": kind,
    }
    return {name: value for name, value in given.items() if value is not None}


def _move(
    session: Session,
    verb: str,
    stream: str,
    group: str,
    which: dict[str, Any],
    care: Care,
    *,
    everything: bool,
    dry_run: bool,
    yes: bool,
    by: str | None,
) -> None:
    if not which and not everything:
        raise FilterNeeded
    if which and everything:
        raise Usage("--all stands for every delivery: name it without a filter.")
    session.refuse_unasked(yes or dry_run)
    with session.open() as log:
        acts: dict[str, Callable[..., Moved]] = {"redrive": log.redrive, "replay": log.replay, "purge": log.purge}
        act = acts[verb]
        if "event_ids" in which:
            which["event_ids"] = chosen_ids(log, stream, which["event_ids"])
        if care.wanted:
            which["all"] = everything
            move_many(session, log, verb, (stream, group), which, care, dry_run=dry_run, yes=yes, by=by)
            return

        def question() -> str:
            count = act(stream, group, all=everything, dry_run=True, **which).count
            return f"{verb.capitalize()} {count:,} deliveries of {group} on {stream}?"

        session.confirm(yes or dry_run, question)
        moved = act(stream, group, all=everything, dry_run=dry_run, by=by, **which)
    became = "purged" if verb == "purge" else f"PENDING by {verb}"
    _answer(session, stream, group, moved.count, became, dry_run=dry_run)


@command(root, "kill", panel=OPERATE, example="penstock kill orders fraud --id 42 --reason 'fraudster' --yes")
def kill(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    ids: Ids = None,
    reason: Reason = "killed",
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Give up deliveries that wait: they are claimed and then DEAD. What is being worked on is refused."""
    named = parsed_ids(ids)
    session.refuse_unasked(yes or dry_run)
    with session.open() as log:
        chosen = chosen_ids(log, stream, named)
        session.confirm(yes or dry_run, lambda: f"Kill {len(chosen):,} deliveries of {group} on {stream}?")
        count = log.kill(stream, group, event_ids=chosen, reason=reason, dry_run=dry_run, by=by).count
    _answer(session, stream, group, count, "DEAD", dry_run=dry_run)


def cancel_events(
    session: Session,
    stream: str,
    group: str,
    ids: Sequence[str] | None,
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
    by: str | None,
) -> None:
    """Cancel deliveries; `penstock cancel` cancels jobs, too."""
    named = parsed_ids(ids)
    session.refuse_unasked(yes or dry_run)
    with session.open() as log:
        chosen = chosen_ids(log, stream, named)
        session.confirm(yes or dry_run, lambda: f"Cancel {len(chosen):,} deliveries of {group} on {stream}?")
        done = log.cancel(stream, group, event_ids=chosen, reason=reason, dry_run=dry_run, by=by)
    what = f"cancelled ({done.running:,} of them run, and are told with the next heartbeat)" if done.running else "DEAD"
    _answer(session, stream, group, done.count, what, dry_run=dry_run, running=done.running)


@command(root, "reschedule", panel=OPERATE, example="penstock reschedule orders fraud --id 42 --at +1h")
def reschedule(
    session: Session, *, stream: Stream, group: Group, at: At, ids: Ids = None, dry_run: DryRun = False, by: By = None
) -> None:
    """Move the time at which waiting deliveries become due."""
    named, due = parsed_ids(ids), parse_time(at, "--at")
    with session.open() as log:
        chosen = chosen_ids(log, stream, named)
        count = log.reschedule(stream, group, event_ids=chosen, available_at=due, dry_run=dry_run, by=by).count
    _answer(session, stream, group, count, f"due at {due.isoformat()}", dry_run=dry_run, available_at=due)


@command(root, "skip", panel=OPERATE, example="penstock skip orders ledger customer-42 --yes")
def skip(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The ordering key.", show_default=False)],
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Let a key go on that halted at a dead letter. The dead letter stays DEAD."""
    check_key(key, "key")
    session.refuse_unasked(yes or dry_run)
    with session.open() as log:
        session.confirm(yes or dry_run, lambda: f"Let {key} of {group} on {stream} go on past its dead letters?")
        count = log.skip(stream, group, key, dry_run=dry_run, by=by).count
    _answer(session, stream, group, count, f"passed by {key}", dry_run=dry_run, key=key)


@command(root, "reap", panel=OPERATE, example="penstock reap")
def reap(session: Session) -> None:
    """Take back what expired: leases whose holder is gone. Claims do this by themselves."""
    with session.open() as log:
        ended = log.reap()
    session.answer({"ended": ended}, lambda: f"{ended:,} expired leases ended")


@command(root, "prune", panel=OPERATE, example="penstock prune orders --before -30d")
def prune(
    session: Session,
    *,
    stream: Stream,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help=f"Events created before: {TIME_HELP}.")
    ] = None,
    upto: Annotated[
        int | None, typer.Option("--upto", metavar="OFFSET", min=0, max=LARGEST, help="Events up to this offset.")
    ] = None,
    keep_dead: Annotated[
        bool, typer.Option("--keep-dead/--drop-dead", help="Keep dead letters and their events.")
    ] = True,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Remove events that every group has finished with, and what was recorded about them."""
    if (before is None) == (upto is None):
        raise Usage("Say how far to prune: either --before TIME or --upto OFFSET.")
    moment = parse_optional(before, "--before")
    with session.open() as log:
        session.confirm_if_watched(yes, lambda: f"Remove what every group of {stream} has finished with?")
        count = log.prune(stream, before=moment, upto=upto, keep_dead=keep_dead, by=by).count
        meant = "" if count or session.as_json else near.stream_like(log, stream)
    removed = f"{stream}: {count:,} events removed"
    session.answer({"stream": stream, "count": count}, lambda: f"{removed}. {meant}" if meant else removed)


def parsed_ids(ids: Sequence[str] | None) -> list[uuid.UUID | int]:
    """The events that were named with --id; there must be some."""
    if not ids:
        raise MissingField("Name the deliveries with --id.")
    return [parse_event(one) for one in ids]


def chosen_ids(log: Log, stream: str, named: Sequence[uuid.UUID | int]) -> list[uuid.UUID]:
    """The ids of events that were named by id or by offset, each once."""
    found = (log.event(stream, one).event_id if isinstance(one, int) else one for one in named)
    return list(dict.fromkeys(found))


def _answer(session: Session, stream: str, group: str, count: int, what: str, *, dry_run: bool, **more: Any) -> None:
    document = {"stream": stream, "group": group, "count": count, "dry_run": dry_run, **more}
    session.answer(document, lambda: moved_line(stream, group, count, what, dry_run=dry_run))


def moved_line(stream: str, group: str, count: int, what: str, *, dry_run: bool = False) -> str:
    """What a command says that moved deliveries."""
    would = "would be" if dry_run else "are now"
    return f"{group} on {stream}: {count:,} deliveries {would} {what}"
