"""Archives and what they are for: archive, list, restore; and erase, which reaches into them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import LARGEST, By, Stream, Yes
from penstock.cli.command import LOOK, OPERATE, command, root
from penstock.cli.completion import streams
from penstock.cli.failures import Usage
from penstock.cli.run import own_output, spark_settings
from penstock.cli.session import Session
from penstock.cli.times import TIME_HELP, parse_optional
from penstock.core.event import parse_event_id
from penstock.core.limits import RESTORE_KEEP_DAYS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.archives.record import Archive


@command(root, "archive", panel=OPERATE, example="penstock archive orders /srv/archive --before -30d --prune")
def archive(
    session: Session,
    *,
    stream: Stream,
    place: Annotated[
        str, typer.Argument(metavar="PATH", help="A directory, or s3://bucket/prefix.", show_default=False)
    ],
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help=f"Events created before: {TIME_HELP}.")
    ] = None,
    upto: Annotated[
        int | None, typer.Option("--upto", metavar="OFFSET", min=0, max=LARGEST, help="Events up to this offset.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Then remove what every group has finished of it.", show_default=False)
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="All machines have mounted the directory at this path.", show_default=False)
    ] = False,
    master: Annotated[str | None, typer.Option("--master", help="The Spark master.")] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="K=V", help="A setting of Spark; repeat it for more.", show_default=False),
    ] = None,
    by: By = None,
) -> None:
    """Copy the events of a stream into Parquet files, with Spark. Interrupted, the same command goes on."""
    if before is not None and upto is not None:
        raise Usage("Say how far to archive: either --before TIME or --upto OFFSET.")
    moment, settings = parse_optional(before, "--before"), spark_settings(conf)
    from penstock.archive.write import archive as write
    from penstock.spark.run import Submit, session_for

    said = Submit(master, settings)
    with (
        session.open() as log,
        own_output(session),
        session_for(None, said, "penstock-archive", log.store.url) as spark,
    ):
        done = write(log, stream, place, spark=spark, before=moment, upto=upto, prune=prune, shared=shared, by=by)
    document = {"stream": stream, "place": done.place, "events": done.events, "upto": done.upto, "pruned": done.pruned}
    removed = f", {done.pruned:,} removed from the log" if prune else ""
    archived = f"{done.events:,} events archived in {output.plain(done.place)}{removed}"
    session.answer(document, lambda: f"{stream}: {archived}; up to offset {done.upto:,}")


@command(root, "archives", panel=LOOK, example="penstock archives orders")
def archives(
    session: Session,
    *,
    stream: Annotated[
        str | None, typer.Argument(metavar="[STREAM]", help="Only of this stream.", autocompletion=streams)
    ] = None,
) -> None:
    """List the archives: which offsets, where, how many events and bytes."""
    with session.open() as log:
        found = log.archives(stream)
    session.answer({"archives": [asdict(one) for one in found]}, lambda: _table(found))


@command(root, "restore", panel=OPERATE, example="penstock restore orders --after 1000 --upto 2000")
def restore(
    session: Session,
    *,
    stream: Stream,
    source: Annotated[
        str | None, typer.Option("--from", metavar="PATH", help="Only from the archive in this place.")
    ] = None,
    after: Annotated[
        int, typer.Option("--after", metavar="OFFSET", min=0, max=LARGEST, help="Only above this offset.")
    ] = 0,
    upto: Annotated[
        int | None, typer.Option("--upto", metavar="OFFSET", min=0, max=LARGEST, help="Only up to this offset.")
    ] = None,
    keep_days: Annotated[
        float, typer.Option("--keep-days", metavar="N", min=0, help="Policies leave them alone for so many days.")
    ] = RESTORE_KEEP_DAYS,
    by: By = None,
) -> None:
    """Put archived events back under their own offsets, for rewind and replay. Interrupted, run it again."""
    with session.open() as log:
        done = log.restore(stream, source=source, after=after, upto=upto, keep_days=keep_days, by=by)
    more = f", {done.taken:,} not: their ids were appended again" if done.taken else ""
    line = f"{stream}: {done.events:,} events restored, {done.present:,} were there{more}"
    session.answer({"stream": stream, **asdict(done)}, lambda: f"{line}; pruned up to offset {done.pruned_upto:,}")


@command(root, "erase", panel=OPERATE, example="penstock erase 0198f2b4-1111-7abc-8def-0123456789ab --reason gdpr-77")
def erase(
    session: Session,
    *,
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event.", show_default=False)],
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.", show_default=False)],
    yes: Yes = False,
    by: By = None,
) -> None:
    """Erase the payload of an event, in the log and in archives; the event stays. It cannot be undone."""
    known = parse_event_id(event_id)
    session.refuse_unasked(yes)
    with session.open() as log:
        session.confirm(yes, lambda: f"Erase the payload of {known} for good?")
        done = log.erase(known, reason=reason, by=by)
    files = f", and rewritten in {len(done.files):,} archived files" if done.files else ""
    line = f"{done.event_id} was erased before" if done.already else f"{done.event_id} is erased{files}"
    session.answer(asdict(done), lambda: line)


def _table(found: list[Archive]) -> RenderableType:
    if not found:
        return "There are no archives; `penstock archive` writes one."
    rows = (
        (
            str(one.id),
            output.cell(one.stream),
            f"{one.low + 1:,}–{one.high:,}",
            f"{one.events:,}" if one.done else "writing",
            f"{one.bytes:,}",
            output.age(one.ended_at or one.began_at),
            output.cell(one.place),
        )
        for one in found
    )
    return output.table((">id?", "stream…", "offsets", ">events", ">bytes?", "when?", "place…"), rows)
