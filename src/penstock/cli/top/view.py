"""How `penstock top` looks: problems, groups, runs; or one group in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.cli import output
from penstock.cli.sparkline import sparkline
from penstock.cli.top.sample import Line, Sample
from penstock.log.problems import ROWS_MOST

if TYPE_CHECKING:
    from rich.console import RenderableType

_PROBLEMS: Final = 8  # lines
_RUNS: Final = 8
_DETAIL_LINES: Final = 12
_SORTS: Final[dict[str, Callable[[Line], Any]]] = {
    "name": lambda one: one.name,
    "lag": lambda one: -one.stats.lag,
    "rate": lambda one: -one.rate,
    "dead": lambda one: -one.stats.dead,
    "oldest": lambda one: -(one.stats.oldest_seconds or 0.0),
}
SORTS: Final = (*_SORTS,)


@dataclass(slots=True)
class View:
    """What the person at the keyboard has chosen to see."""

    url: str
    sort: str = "name"
    filter: str = ""
    place: int = 0  # of the cursor among the groups
    opened: tuple[str, str] | None = None  # the group that is shown in full
    paused: bool = False
    typing: bool = False  # a filter
    watched: bool = True  # by somebody with a keyboard

    def chosen(self, sample: Sample) -> list[Line]:
        """The groups to show, in order."""
        wanted = [one for one in sample.lines if self.filter.lower() in one.name.lower()]
        return sorted(wanted, key=lambda one: (_SORTS[self.sort](one), one.name))

    def frame(self, sample: Sample, width: int, height: int | None = None) -> RenderableType:
        """Everything, cut to the height of the screen; without one, everything."""
        parts = [self._head(sample, width)]
        if self.opened is not None:
            parts += self._group(sample, width)
        else:
            problems = _problems(sample, width)
            parts += problems
            parts += self._groups(sample, width, None if height is None else max(3, height - len(problems) - 16))
            parts += _runs(sample, width)
        if self.watched:
            parts += ["", self._keys()]
        return output.stacked(*parts)

    def _head(self, sample: Sample, width: int) -> RenderableType:
        clock = f"{sample.at:%H:%M:%S} UTC{'  PAUSED' if self.paused else ''}"
        facts = f"{sample.events:,} events · horizon {sample.horizon:,} · {clock}"
        room = width - len(facts) - 2
        title = f"penstock top  {output.plain(self.url)}"
        return output.styled(f"{title}  {facts}" if len(title) <= room else f"{title[:width]}\n{facts}", "bold")

    def _keys(self) -> RenderableType:
        if self.typing:
            return output.styled(f"filter: {output.plain(self.filter)}▏  enter: keep, esc: clear", "bold yellow")
        back = (
            "esc back" if self.opened else f"s sort: {self.sort}  / filter{f': {self.filter}' if self.filter else ''}"
        )
        more = "" if self.opened else "  ↑↓ enter"
        return output.styled(f"q quit  p {'go on' if self.paused else 'pause'}  {back}{more}", "dim")

    # --- the list ------------------------------------------------------------------------------------------------

    def _groups(self, sample: Sample, width: int, most: int | None) -> list[RenderableType]:
        lines = self.chosen(sample)
        if not lines:
            return ["", "No group matches." if self.filter else "There are no groups yet: `penstock group create`."]
        self.place = max(0, min(self.place, len(lines) - 1))
        first = 0 if most is None else max(0, min(self.place - most // 2, len(lines) - most))
        shown = lines[first : None if most is None else first + most]
        rows = [self._row(one, self.watched and first + number == self.place) for number, one in enumerate(shown)]
        left_out = len(lines) - len(shown)
        columns = ("", "group…", ">rate", ">lag", ">oldest?", ">claimed?", ">retry?", ">dead", "1 h…?")
        made: list[RenderableType] = ["", output.table(columns, rows, width=width)]
        return [*made, output.styled(f"  and {left_out:,} more", "dim")] if left_out else made

    @staticmethod
    def _row(one: Line, here: bool) -> Sequence[RenderableType]:
        stats = one.stats
        mark = "⏸" if stats.paused else "○" if stats.unavailable else ""
        style = "reverse" if here else "yellow" if mark else ""
        return (
            "▶" if here else " ",
            output.styled(f"{output.cell(one.name)} {mark}".rstrip(), style),
            f"{one.rate:,.0f}/s" if one.rate >= 10 or one.rate == 0 else f"{one.rate:,.1f}/s",
            f"{'' if stats.lag_is_exact else '≥'}{stats.lag:,}",
            output.seconds(stats.oldest_seconds),
            f"{stats.claimed:,}",
            output.styled(_counted(one.retrying), "yellow" if one.retrying else "dim"),
            output.styled(_counted(stats.dead), "bold red" if stats.dead else "dim"),
            output.styled(sparkline(one.minutes), "green"),
        )

    # --- one group -----------------------------------------------------------------------------------------------

    def _group(self, sample: Sample, width: int) -> list[RenderableType]:
        found = [one for one in sample.lines if (one.stats.stream, one.stats.group) == self.opened]
        if not found or sample.detail is None:
            return ["", "The group is gone." if not found else "…"]
        parts: list[RenderableType] = ["", output.table(_COUNTS, [_counts(found[0])], width=width)]
        lanes = [
            (str(one.lane), f"{one.cursor:,}", f"{one.behind:,}", f"{one.returned_events:,}")
            for one in sample.detail.lanes[:_DETAIL_LINES]
        ]
        parts += ["", output.table((">lane", ">cursor", ">offsets behind", ">came back"), lanes, width=width)]
        leases = [
            (
                f"#{one.id}",
                str(one.lane),
                f"{one.members:,}",
                output.cell(one.claimed_by, 40),
                output.age(one.claimed_at, sample.at),
                output.age(one.expires_at, sample.at),
            )
            for one in sample.detail.leases[:_DETAIL_LINES]
        ]
        columns = (">lease", ">lane?", ">events", "claimed by…", ">since", ">expires")
        parts += ["", output.table(columns, leases, width=width) if leases else "No lease is open."]
        keys = [
            (output.cell(one.key, 40), f"{one.offset:,}", output.state_text(one.state), output.cell(one.event_type, 30))
            for one in sample.detail.keys[:_DETAIL_LINES]
        ]
        return (
            [*parts, "", output.table(("held key…", ">first", "state", "type…?"), keys, width=width)] if keys else parts
        )


_COUNTS: Final = ("group…", ">pending", ">claimed", ">retry?", ">published", ">dead", ">rate")


def _counts(one: Line) -> Sequence[RenderableType]:
    stats = one.stats
    numbers = (f"{stats.pending:,}", f"{stats.claimed:,}", _counted(one.retrying), f"{stats.published:,}")
    return (output.cell(one.name), *numbers, _counted(stats.dead), f"{one.rate:,.1f}/s")


def _counted(rows: int) -> str:
    """Write what a survey has counted, which ends at a limit."""
    return f"{rows:,}{'+' if rows >= ROWS_MOST else ''}"


def _problems(sample: Sample, width: int) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for one in sample.problems[:_PROBLEMS]:
        where = f"{one.stream}/{one.group}: " if one.group else ""
        since = "" if one.since is None else f" ({output.seconds((sample.at - one.since).total_seconds())})"
        said = output.plain(f"! {where}{one.what}{since}")
        text = said if len(said) <= width else said[: width - 1] + "…"
        lines.append(output.styled(text, "bold red" if one.grave else "yellow"))
    if len(sample.problems) > _PROBLEMS:
        lines.append(output.styled(f"  and {len(sample.problems) - _PROBLEMS} more: penstock doctor", "dim"))
    return lines or [output.styled("No problems.", "green")]


def _runs(sample: Sample, width: int) -> list[RenderableType]:
    if not sample.runs:
        return ["", output.styled("Nobody is at work on this log.", "dim")]
    rows = [
        (
            str(one.id),
            output.cell(one.name, 40),
            one.engine,
            output.cell(", ".join(one.groups) or one.app or "", 40),
            output.age(one.heartbeat_at, sample.at),
            output.styled(one.state, "" if one.state == "running" else "bold yellow"),
        )
        for one in sample.runs[:_RUNS]
    ]
    columns = (">run", "name…?", "engine", "serves…", ">heartbeat", "state")
    return ["", output.table(columns, rows, width=width)]
