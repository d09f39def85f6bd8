"""How events, deliveries and stats look: as documents and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli import output
from penstock.core.batch import Event

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.deliveries import DeliveryRecord
    from penstock.log.stats import JobTypeStats, Stats

NOTHING = "Nothing matches."


def progress_document(one: DeliveryRecord) -> dict[str, Any]:
    """What the delivery adds to its event."""
    names = (
        "group state attempts failures total_attempts available_at claimed_at claimed_by last_error error_code "
        "error_type fingerprint reason published_at dead_at updated_at history"
    )
    return {name: getattr(one, name) for name in names.split()}


def delivery_document(one: DeliveryRecord) -> dict[str, Any]:
    """The event's fields and the delivery's, in one."""
    progress = progress_document(one)
    del progress["history"]
    return {**output.event_document(one), **progress}


def event_table(found: Sequence[Event]) -> RenderableType:
    """Events as no group has seen them."""
    rows = (
        (
            str(one.offset),
            output.cell(one.event_type, 40),
            output.cell(one.ordering_key, 30),
            output.age(one.created_at),
            str(one.event_id),
            output.payload_text(one),
        )
        for one in found
    )
    return output.table((">offset", "type…", "key…?", "created", "event id?", "payload…"), rows) if found else NOTHING


def delivery_table(found: Sequence[DeliveryRecord]) -> RenderableType:
    """Deliveries of one group."""
    rows = (
        (
            str(one.offset),
            output.cell(one.event_type, 40),
            output.cell(one.ordering_key, 30),
            output.state_text(one.state),
            f"{one.attempts}/{one.failures}",
            _since_when(one),
            str(one.event_id),
            output.cell(_error_text(one.error_type, one.last_error) or one.reason or "", 80),
        )
        for one in found
    )
    columns = (">offset", "type…", "key…?", "state", ">tries/failed?", "when", "event id?", "error…")
    return output.table(columns, rows) if found else NOTHING


def _error_text(kind: str | None, error: str | None) -> str:
    """An error with the class of its exception, which many texts say nothing without."""
    if error is None or kind is None or error.startswith((kind, f"{kind.rpartition('.')[2]}:")):
        return error or ""
    return f"{kind}: {error}"


def _since_when(one: DeliveryRecord) -> str:
    return output.age(one.dead_at or one.published_at or one.claimed_at or one.available_at or one.created_at)


def event_in_full(event: Event, deliveries: Sequence[DeliveryRecord]) -> RenderableType:
    """One event, what every group made of it, and every attempt."""
    facts: list[tuple[str, RenderableType]] = [
        ("event", output.styled(f"{event.stream}@{event.offset} {event.event_id}", "bold")),
        ("type", output.cell(event.event_type, 128)),
        ("created", output.moment_text(event.created_at)),
        ("ordering key", output.cell(event.ordering_key, 512)),
        ("partition key", output.cell(event.partition_key, 512)),
        ("not before", output.moment_text(event.available_at)),
        ("headers", output.cell(event.headers or None, 2000)),
        ("metadata", output.cell(event.metadata or None, 2000)),
        ("content", f"{len(event.payload):,} bytes, {output.plain(event.content_type)}"),
        ("payload", output.styled("erased", "bold") if event.erased else output.payload_text(event, 2000)),
    ]
    history = [
        (
            output.cell(one.group),
            str(line.attempt),
            line.outcome,
            output.age(line.at),
            output.cell(line.by or "", 30),
            output.cell(line.lease or ""),
            output.cell(_error_text(line.error_type, line.error), 80),
        )
        for one in deliveries
        for line in one.history
    ]
    parts: list[RenderableType] = [output.pairs(facts)]
    if deliveries:
        rows = [
            (
                output.cell(one.group),
                output.state_text(one.state),
                f"{one.attempts}/{one.failures}",
                _since_when(one),
                output.cell(_error_text(one.error_type, one.last_error) or one.reason or "", 80),
            )
            for one in deliveries
        ]
        parts.append(output.table(("group…", "state", ">tries/failed?", "when", "error…"), rows, title="Deliveries"))
    if history:
        columns = ("group…", ">attempt", "outcome", "when", "by…?", ">lease?", "error…")
        parts.append(output.table(columns, history, title="History"))
    return output.stacked(*parts, *_tracebacks(deliveries))


def _tracebacks(deliveries: Sequence[DeliveryRecord]) -> list[RenderableType]:
    """Each kind of error once, the newest last."""
    from rich.text import Text

    found = {line.fingerprint: line for one in deliveries for line in one.history if line.traceback}
    return [
        output.stacked(
            Text(f"\nTraceback of {line.error_type or line.error_code} ({line.fingerprint})", style="bold"),
            Text("\n".join(output.plain(row) for row in (line.traceback or "").splitlines()), overflow="fold"),
        )
        for line in found.values()
    ]


def stats_tables(found: Stats) -> RenderableType:
    """Stats to look at."""
    counts = " · ".join(f"{output.plain(one.stream)} {one.events:,}" for one in found.streams) or "no events yet"
    rows = (
        (
            output.cell(one.stream),
            output.cell(one.group),
            _count(one.pending, "yellow"),
            _count(one.claimed, "cyan"),
            _count(one.published, "green"),
            _count(one.dead, "bold red"),
            f"{'' if one.lag_is_exact else '≥'}{one.lag:,}",
            output.seconds(one.oldest_seconds),
            f"{one.published_per_second:,.1f}/s",
            output.styled("paused" if one.paused else "unavailable" if one.unavailable else "", "yellow"),
        )
        for one in found.groups
    )
    columns = ("stream…", "group…", ">pending", ">claimed", ">published", ">dead", ">lag", ">oldest?", ">rate?", "")
    tables = [output.table(columns, rows)]
    if found.job_types:
        tables.append(job_type_table(found.job_types))
    return output.stacked(f"events: {counts} · horizon {found.horizon:,}", *tables)


def job_type_table(types: Sequence[JobTypeStats]) -> RenderableType:
    """Jobs by type."""
    rows = (
        (
            output.cell(one.type),
            output.cell(one.queue),
            _count(one.pending, "yellow"),
            _count(one.claimed, "cyan"),
            _count(one.completed_total, "green"),
            _count(one.exhausted_total, "bold red"),
        )
        for one in types
    )
    return output.table(("job type…", "queue…", ">pending", ">claimed", ">completed", ">exhausted"), rows)


def _count(number: int, style: str) -> RenderableType:
    return output.styled(f"{number:,}", style if number else "dim")
