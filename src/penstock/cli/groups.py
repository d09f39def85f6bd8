"""`penstock groups` and `penstock group …`: who consumes a stream, and how."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from penstock.cli import near, output
from penstock.cli.arguments import By, DryRun, Group, Headers, Stream, Types, Yes, parse_headers, parse_types
from penstock.cli.command import LOOK, command, group, root
from penstock.cli.completion import fixed, streams
from penstock.cli.failures import Usage
from penstock.cli.session import Session
from penstock.cli.times import parse_position
from penstock.core import limits
from penstock.core.event import check_name
from penstock.core.group import Group as StoredGroup
from penstock.core.retry import Retry

if TYPE_CHECKING:
    from rich.console import RenderableType

_POSITION = "POSITION"
_POSITION_HELP = "beginning, end, an offset, or a time (-1h, 2026-07-01T12:00Z)"
_DEFAULT = Retry()
_ON_DEAD = typer.Option(
    "--on-dead",
    metavar="continue|halt",
    help="What a key does after a dead letter.",
    autocompletion=fixed("continue", "halt"),
)
_LEASE_SECONDS = typer.Option("--lease-seconds", help="How long a claim holds.")
_MAX_ATTEMPTS = typer.Option("--max-attempts", help="This failure is the last.")
_BASE_SECONDS = typer.Option("--base-seconds", help="The first delay.")
_FACTOR = typer.Option("--factor", help="How the delay grows.")
_CAP_SECONDS = typer.Option("--cap-seconds", help="The longest delay.")
_JITTER = typer.Option("--jitter", help="How much of it is left to chance.")
_MAX_AGE_SECONDS = typer.Option("--max-age-seconds", help="Events older than this fail for good.")


@command(root, "groups", panel=LOOK, example="penstock groups orders")
def groups(
    session: Session,
    *,
    stream: Annotated[
        str | None,
        typer.Argument(
            metavar="STREAM", help="Only the groups of this stream.", show_default=False, autocompletion=streams
        ),
    ] = None,
) -> None:
    """List the groups of a stream, or all of them, with their policy."""
    with session.open() as log:
        found = log.groups(stream)
        meant = "" if found or stream is None or session.as_json else near.stream_like(log, stream)
    session.answer({"groups": [_document(one) for one in found]}, lambda: meant or _table(found))


@command(group, "create", example="penstock group create orders fraud --types 'order.*' --max-attempts 5")
def create(
    session: Session,
    *,
    stream: Stream,
    name: Group,
    start: Annotated[
        str,
        typer.Option(
            "--start",
            metavar=_POSITION,
            help=f"Where it starts: {_POSITION_HELP}.",
            autocompletion=fixed("beginning", "end"),
        ),
    ] = "beginning",
    types: Types = None,
    header: Headers = None,
    ordering: Annotated[
        str | None,
        typer.Option("--ordering", metavar="key", help="Keep the order of a key.", autocompletion=fixed("key")),
    ] = None,
    keyed: Annotated[bool, typer.Option("--keyed", help="State by key, without order.")] = False,
    lanes: Annotated[int | None, typer.Option("--lanes", help="Slices of the keys, a power of two.")] = None,
    on_dead: Annotated[str, _ON_DEAD] = "continue",
    lease_seconds: Annotated[float, _LEASE_SECONDS] = limits.LEASE_SECONDS,
    max_attempts: Annotated[int, _MAX_ATTEMPTS] = _DEFAULT.max_attempts,
    base_seconds: Annotated[float, _BASE_SECONDS] = _DEFAULT.base_seconds,
    factor: Annotated[float, _FACTOR] = _DEFAULT.factor,
    cap_seconds: Annotated[float, _CAP_SECONDS] = _DEFAULT.cap_seconds,
    jitter: Annotated[float, _JITTER] = _DEFAULT.jitter,
    max_age_seconds: Annotated[float | None, _MAX_AGE_SECONDS] = None,
) -> None:
    """Create a group. The same command again changes nothing; other settings are refused."""
    check_name(stream, "stream")
    check_name(name, "group")
    where = parse_position(start, "--start")
    retry = Retry(max_attempts, base_seconds, factor, cap_seconds, jitter, max_age_seconds)
    headers = parse_headers(header)
    with session.open(create=True) as log:
        made = log.create_group(
            stream,
            name,
            start=where,
            retry=retry,
            lease_seconds=lease_seconds,
            ordering=ordering,
            keyed=keyed,
            on_dead=on_dead,
            types=parse_types(types),
            headers=headers,
            lanes=lanes,
        )
    session.answer(_document(made), lambda: _table([made]))


@command(group, "set", example="penstock group set orders fraud --max-attempts 5 --lanes 16")
def set_group(
    session: Session,
    *,
    stream: Stream,
    name: Group,
    max_attempts: Annotated[int | None, _MAX_ATTEMPTS] = None,
    base_seconds: Annotated[float | None, _BASE_SECONDS] = None,
    factor: Annotated[float | None, _FACTOR] = None,
    cap_seconds: Annotated[float | None, _CAP_SECONDS] = None,
    jitter: Annotated[float | None, _JITTER] = None,
    max_age_seconds: Annotated[float | None, _MAX_AGE_SECONDS] = None,
    lease_seconds: Annotated[float | None, _LEASE_SECONDS] = None,
    on_dead: Annotated[str | None, _ON_DEAD] = None,
    lanes: Annotated[
        int | None, typer.Option("--lanes", help="Slices of the keys: twice as many as there are.")
    ] = None,
    max_in_flight: Annotated[
        int | None,
        typer.Option("--max-in-flight", metavar="N", min=0, help="Claimed at a time at most; 0: any number."),
    ] = None,
    rate_per_second: Annotated[
        float | None, typer.Option("--rate", metavar="R", min=0, help="Claimed a second at most; 0: any number.")
    ] = None,
    by: By = None,
) -> None:
    """Change the policy of a group. What is not given stays as it is."""
    policy: dict[str, Any] = {
        "max_attempts": max_attempts,
        "base_seconds": base_seconds,
        "factor": factor,
        "cap_seconds": cap_seconds,
        "jitter": jitter,
        "max_age_seconds": max_age_seconds,
    }
    given = {field: value for field, value in policy.items() if value is not None}
    others = (lease_seconds, on_dead, lanes, max_in_flight, rate_per_second)
    if not given and all(one is None for one in others):
        raise Usage("Nothing to change: name at least one setting.")
    with session.open() as log:
        stored = next((one for one in log.groups(stream) if one.group_name == name), None)
        retry = replace(Retry() if stored is None else stored.retry, **given) if given else None  # checked either way
        changed = log.set_group(
            stream,
            name,
            retry=retry,
            lease_seconds=lease_seconds,
            on_dead=on_dead,
            lanes=lanes,
            max_in_flight=max_in_flight,
            rate_per_second=rate_per_second,
            by=by,
        )
    session.answer(_document(changed), lambda: _table([changed]))


@command(group, "pause", example="penstock group pause orders fraud --reason 'deploying'")
def pause(
    session: Session,
    *,
    stream: Stream,
    name: Group,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for those who look at it.")] = None,
    by: By = None,
) -> None:
    """Hand out nothing new; what is being worked on goes on."""
    with session.open() as log:
        log.pause(stream, name, reason=reason, by=by)
    _done(session, stream, name, "paused", {"paused": True, "reason": reason})


@command(group, "resume", example="penstock group resume orders fraud")
def resume(session: Session, *, stream: Stream, name: Group, by: By = None) -> None:
    """Go on after a pause."""
    with session.open() as log:
        log.resume(stream, name, by=by)
    _done(session, stream, name, "resumed", {"paused": False})


@command(group, "bind", example="penstock group bind orders fraud --types 'order.*' --types payment.failed")
def bind(
    session: Session,
    *,
    stream: Stream,
    name: Group,
    types: Types = None,
    header: Headers = None,
    everything: Annotated[bool, typer.Option("--everything", help="Every event of the stream.")] = False,
    by: By = None,
) -> None:
    """Change which events the group wants, from now on; what came before keeps its truth."""
    if everything == bool(types or header):
        raise Usage("Name --types or --header, or say --everything.")
    headers = parse_headers(header)
    with session.open() as log:
        offset = log.bind(stream, name, types=parse_types(types), headers=headers, by=by)
    document = {"from_offset": offset, "types": parse_types(types), "headers": headers}
    _done(session, stream, name, f"bound anew for events above offset {offset}", document)


@command(group, "rewind", example="penstock group rewind orders fraud --to -1d --dry-run")
def rewind(
    session: Session,
    *,
    stream: Stream,
    name: Group,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar=_POSITION,
            help=f"Deliver again what lies above: {_POSITION_HELP}.",
            autocompletion=fixed("beginning", "end"),
        ),
    ],
    state: Annotated[
        str,
        typer.Option(
            "--state",
            metavar="keep|reset",
            help="What happens to keyed state.",
            autocompletion=fixed("keep", "reset"),
        ),
    ] = "keep",
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Deliver again everything above a position. Open leases end; other groups do not move."""
    target = parse_position(to, "--to")
    session.refuse_unasked(yes or dry_run)
    with session.open() as log:

        def question() -> str:
            count = log.rewind(stream, name, to=target, state=state, dry_run=True).count
            return f"Deliver {count:,} events to {name} on {stream} again, and {state} its keyed state?"

        session.confirm(yes or dry_run, question)
        moved = log.rewind(stream, name, to=target, state=state, dry_run=dry_run, by=by)
    verb = "would be delivered again" if dry_run else "will be delivered again"
    document = {"count": moved.count, "dry_run": dry_run, "state": state}
    _done(session, stream, name, f"{moved.count:,} events {verb}", document)


@command(group, "delete", example="penstock group delete orders fraud --yes")
def delete(session: Session, *, stream: Stream, name: Group, yes: Yes = False, by: By = None) -> None:
    """Forget a group and its deliveries, dead letters included. The events stay."""
    session.refuse_unasked(yes)
    with session.open() as log:
        session.confirm(yes, lambda: f"Delete the group {name} on {stream}, with its dead letters and its state?")
        log.delete_group(stream, name, by=by)
    _done(session, stream, name, "deleted", {"deleted": True})


def _done(session: Session, stream: str, name: str, what: str, document: dict[str, Any]) -> None:
    session.answer({"stream": stream, "group": name, **document}, lambda: f"{name} on {stream}: {what}")


def _document(one: StoredGroup) -> dict[str, Any]:
    wants = one.spans[-1]
    return {
        "stream": one.stream,
        "group": one.group_name,
        "ordering": "key" if one.ordered else None,
        "keyed": one.keyed,
        "lanes": one.lanes,
        "on_dead": one.on_dead,
        "lease_seconds": one.lease_seconds,
        "retry": one.retry.stored,
        "types": wants.types,
        "headers": None if wants.headers is None else orjson.loads(wants.headers),
        "start": one.floor,
        "paused": one.paused,
        "pause_reason": one.pause_reason,
        "circuit": _circuit(one),
        "created_at": one.created_at,
    }


def _circuit(one: StoredGroup) -> dict[str, Any] | None:
    if one.circuit is None:
        return None
    return {
        "opened_at": one.circuit.opened_at,
        "probe_at": one.circuit.probe_at,
        "delay_seconds": one.circuit.delay_seconds,
        "last_error": one.circuit.last_error,
        "error_code": one.circuit.error_code,
    }


def _halted(one: StoredGroup) -> RenderableType:
    """Why the group hands out nothing, or next to nothing."""
    if one.paused:
        return output.styled(f"paused: {output.plain(one.pause_reason or 'by hand')}", "yellow")
    if one.circuit is not None:
        return output.styled(f"circuit open: {output.plain(one.circuit.last_error or 'unavailable')}", "yellow")
    return output.NONE


def _table(found: list[StoredGroup]) -> RenderableType:
    if not found:
        return "There are no groups; `penstock group create STREAM GROUP` makes one."
    rows = (
        (
            output.cell(one.stream),
            output.cell(one.group_name),
            output.cell(", ".join(one.spans[-1].types or ("everything",)), 40),
            "key" if one.ordered else output.NONE,
            str(one.lanes),
            str(one.retry.max_attempts),
            output.seconds(one.lease_seconds),
            _halted(one),
        )
        for one in found
    )
    return output.table(("stream…", "group…", "wants…?", "order?", ">lanes?", ">attempts", ">lease?", "halted…"), rows)
