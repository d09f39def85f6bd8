"""What `penstock import` answers: a table of the source's counts and ours, or one document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli import output
from penstock.core.delivery import State

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.imports.run import GroupReport, Report

# In the source somebody may have been working on it; here it waits.
_HERE = {State.PENDING: (State.PENDING, State.CLAIMED), State.PUBLISHED: (State.PUBLISHED,), State.DEAD: (State.DEAD,)}


def document(report: Report) -> dict[str, Any]:
    """Return the report as plain data."""
    return {
        "system": report.system,
        "source": report.source,
        "dry_run": report.dry_run,
        "done_before": report.before,
        "complete": report.complete,
        "copied": report.tally.copied,
        "known": report.tally.known,
        "skipped": report.tally.skipped,
        "rejected": dict(report.tally.reasons),
        "notes": report.notes,
        "groups": [
            {
                "stream": one.stream,
                "group": one.group,
                "source": one.source,
                "taken": one.taken,
                "left": one.left,
                "now": one.now,
            }
            for one in report.groups
        ],
    }


def shown(report: Report) -> RenderableType:
    """Return the report to look at."""
    parts: list[RenderableType] = []
    for one in report.groups:
        title = output.styled(f"{output.cell(one.group)} on {output.cell(one.stream)}", "bold")
        parts += [title, _table(one, report.dry_run), ""]
    return output.stacked(*parts, *_lines(report))


def _table(one: GroupReport, dry_run: bool) -> RenderableType:
    columns = ["state", ">source", ">left out", ">taken", *([] if dry_run else [">now"])]
    rows: list[tuple[RenderableType, ...]] = []
    for state, theirs in _HERE.items():
        numbers = [sum(counts.get(word, 0) for word in theirs) for counts in (one.source, one.left, one.taken)]
        now = [] if dry_run else [output.NONE if one.now is None else output.number(_now(one.now, state))]
        rows.append((output.state_text(state), *map(output.number, numbers), *now))
    return output.table(columns, rows)


def _now(counts: dict[str, int], state: State) -> int:
    return sum(counts.get(word, 0) for word in _HERE[state])


def _lines(report: Report) -> list[RenderableType]:
    tally = report.tally
    would = "would be " if report.dry_run else ""
    known = f", {output.number(tally.known)} of them were there already" if tally.known else ""
    lines: list[RenderableType] = [f"{output.number(tally.copied)} events {would}copied{known}"]
    if report.before:
        lines.insert(0, "This import is complete: nothing was done.")
    if tally.skipped:
        lines.append(f"{output.number(tally.skipped)} finished events {would}skipped")
    for why, count in sorted(tally.reasons.items()):
        lines.append(output.styled(f"{output.number(count)} entries {would}rejected: {why}", "yellow"))
    lines += [f"{name}: {output.cell(value)}" for name, value in report.notes.items()]
    if not report.complete and not report.before:
        lines.append(output.styled("The source has changed: its counts are not those that were taken.", "red"))
    return lines
