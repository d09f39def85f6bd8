"""`penstock import …`: take over events and their states from an outbox table, Vulkan, PSPF or osqueue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import import_report, output
from penstock.cli.arguments import By, DryRun
from penstock.cli.command import command, imports
from penstock.cli.completion import fixed, streams
from penstock.cli.failures import Usage
from penstock.cli.session import Session
from penstock.cli.times import parse_position
from penstock.core.event import check_name
from penstock.core.group import GroupSettings, check_settings
from penstock.core.imported import Target
from penstock.core.job import QUEUE, check_not_jobs
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.imports.run import Report, Show
    from penstock.imports.source import Source

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URL",
        envvar="PENSTOCK_IMPORT_FROM",
        help="Where to read from.",
        show_default=False,
        show_envvar=True,
    ),
]
Into = Annotated[
    str, typer.Option("--into", metavar="STREAM", help="The stream.", show_default=False, autocompletion=streams)
]
NewGroup = Annotated[str, typer.Option("--group", metavar="GROUP", help="The new group.", show_default=False)]
Ordering = Annotated[
    str | None,
    typer.Option("--ordering", metavar="key", help="Keep the order of a key.", autocompletion=fixed("key")),
]
Keyed = Annotated[bool, typer.Option("--keyed", help="State by key, for handlers that take a context.")]
Start = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="POSITION",
        help="From where events that the stream had before wait for the new group, too.",
        autocompletion=fixed("beginning", "end"),
    ),
]
SkipPublished = Annotated[
    bool, typer.Option("--skip-published", help="Do not copy what was finished.", show_default=False)
]
States = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="THEIRS=OURS", help="What a state of theirs is; repeat it for more."),
]
DefaultType = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The type of events without one.")]


@command(imports, "outbox", example="penstock import outbox --into orders --group relay --dry-run")
def outbox(
    session: Session,
    *,
    into: Into,
    group: NewGroup,
    source: From = None,
    table: Annotated[str, typer.Option("--table", metavar="NAME", help="The table.")] = "openoutbox_events",
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="FIELD=COLUMN", help="Where a field is, such as payload=body."),
    ] = None,
    state: States = None,
    published_when: Annotated[
        str | None, typer.Option("--published-when", metavar="SQL", help="Such as 'sent_at is not null'.")
    ] = None,
    dead_when: Annotated[str | None, typer.Option("--dead-when", metavar="SQL", help="Such as 'retries >= 5'.")] = None,
    order_by: Annotated[
        str | None, typer.Option("--order-by", metavar="COLUMN,…", help="In which order rows are read.")
    ] = None,
    event_type: DefaultType = None,
    ordering: Ordering = None,
    keyed: Keyed = False,
    start: Start = "beginning",
    skip_published: SkipPublished = False,
    dry_run: DryRun = False,
    by: By = None,
) -> None:
    """Import an outbox table of PostgreSQL into a stream and one new group.

    Stop its relay first. Killed at any point, the same command goes on where it stopped.
    """
    target, url = _target(into, group, start, check_settings(ordering=ordering, keyed=keyed)), _url(source)
    mapped, words = _pairs(column, "--column"), _pairs(state, "--state")
    listed = [one.strip() for one in order_by.split(",")] if order_by else []

    def open_source() -> Source:
        from penstock.imports.outbox import Outbox

        return Outbox(
            url,
            target,
            table=table,
            columns=mapped,
            states=words,
            published_when=published_when,
            dead_when=dead_when,
            order_by=listed,
            default_type=event_type,
        )

    _import(session, open_source, skip_published=skip_published, dry_run=dry_run, by=by)


@command(imports, "vulkan", example="penstock import vulkan --topic orders --dry-run")
def vulkan(
    session: Session,
    *,
    source: From = None,
    schema: Annotated[str, typer.Option("--schema", metavar="NAME", help="Where its tables are.")] = "vulkan",
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Only this topic; repeat it for more.", show_default=False)
    ] = None,
    stream: Annotated[
        list[str] | None, typer.Option("--stream", metavar="TOPIC=STREAM", help="Another name for a topic.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="THEIRS=OURS", help="Another name for a group.")
    ] = None,
    state: States = None,
    event_type: DefaultType = None,
    ordering: Ordering = None,
    keyed: Keyed = False,
    start: Start = "beginning",
    skip_published: SkipPublished = False,
    dry_run: DryRun = False,
    by: By = None,
) -> None:
    """Import Vulkan's topics as streams, and its consumer groups with all their states.

    Stop its workers first. Killed at any point, the same command goes on where it stopped.
    """
    settings, where, url = (
        check_settings(ordering=ordering, keyed=keyed),
        parse_position(start, "--start"),
        _url(source),
    )
    named, groups, words = _pairs(stream, "--stream"), _pairs(group, "--group"), _pairs(state, "--state")

    def open_source() -> Source:
        from penstock.imports.vulkan import Vulkan

        return Vulkan(
            url,
            start=where,
            settings=settings,
            schema=schema,
            topics=topic or (),
            streams=named,
            groups=groups,
            states=words,
            default_type=event_type,
        )

    _import(session, open_source, skip_published=skip_published, dry_run=dry_run, by=by)


@command(imports, "pspf", example="penstock import pspf clicks counter --into clicks --group counter --dry-run")
def pspf(
    session: Session,
    *,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The stream in Valkey.", show_default=False)],
    their_group: Annotated[str, typer.Argument(metavar="THEIRS", help="Its consumer group.", show_default=False)],
    into: Into,
    group: NewGroup,
    source: From = None,
    letters: Annotated[bool, typer.Option("--dlq/--no-dlq", help="Take dead letters over.")] = True,
    event_type: DefaultType = None,
    ordering: Ordering = None,
    keyed: Keyed = False,
    start: Start = "beginning",
    skip_published: SkipPublished = False,
    dry_run: DryRun = False,
    by: By = None,
) -> None:
    """Import a stream of PSPF in Valkey, with the states of one consumer group and its dead letters.

    Stop its workers and producers first. Killed at any point, the same command goes on where it stopped.
    """
    target, url = _target(into, group, start, check_settings(ordering=ordering, keyed=keyed)), _url(source)

    def open_source() -> Source:
        from penstock.imports.pspf import Pspf

        return Pspf(url, topic, their_group, target, letters=letters, default_type=event_type)

    _import(session, open_source, skip_published=skip_published, dry_run=dry_run, by=by)


@command(imports, "osqueue", example="penstock import osqueue queue.json --dry-run")
def osqueue(
    session: Session,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file of the queue.", show_default=False)],
    queue: Annotated[str, typer.Option("--queue", help="The queue of the jobs.")] = QUEUE,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="9 is first.")] = 0,
    dry_run: DryRun = False,
    by: By = None,
) -> None:
    """Submit the unfinished jobs of an osqueue file. The same command again submits only jobs that are new.

    Stop its broker and its workers first.
    """

    def open_source() -> Source:
        from penstock.imports.osqueue import Osqueue

        return Osqueue(file, queue=queue, priority=priority)

    _import(session, open_source, skip_published=False, dry_run=dry_run, by=by)


# --- what they have in common -----------------------------------------------------------------------------------------


def _target(into: str, group: str, start: str, settings: GroupSettings) -> Target:
    stream = check_not_jobs(check_name(into, "stream"))
    return Target(stream, check_name(group, "group"), parse_position(start, "--start"), settings)


def _url(source: str | None) -> str:
    if not source:
        raise Usage("Say where to read from: --from URL, or $PENSTOCK_IMPORT_FROM, which nobody else sees.")
    return source


def _pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in given or ():
        name, equals, value = one.partition("=")
        if not (name and equals and value):
            raise InvalidInput(f"{option} {one!r} is not of the form name=value.")
        found[name] = value
    return found


def _import(
    session: Session, open_source: Callable[[], Source], *, skip_published: bool, dry_run: bool, by: str | None
) -> None:
    from penstock.imports import run
    from penstock.log.checks import author

    with closing(open_source()) as source, _shown(session) as show:
        if dry_run:
            report = run.dry_run(source, skip_published=skip_published, show=show)
        else:
            if not (session.as_json or session.quiet or session.json_lines):
                output.error_console().print(f"Nothing may work on the source meanwhile: stop {source.stop_first}.")
            with session.open(create=True) as log:
                report = run.run(log, source, skip_published=skip_published, by=author(by), show=show)
    _answer(session, report)


def _answer(session: Session, report: Report) -> None:
    session.answer(import_report.document(report), lambda: import_report.shown(report))
    if not report.complete and not report.before:
        raise typer.Exit(1)


@contextmanager
def _shown(session: Session) -> Iterator[Show]:
    """Show how far an import is, if somebody watches."""
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    texts = (TextColumn("{task.description}"), TextColumn("{task.completed:,}"))
    bars: dict[str, TaskID] = {}
    wanted = session.progress_wanted()
    with Progress(
        *texts,
        BarColumn(None),
        TimeRemainingColumn(),
        console=output.error_console(),
        transient=True,
        disable=not wanted,
    ) as progress:

        def show(what: str, done: int, total: int | None) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done, total=total)

        yield show
