"""The overview: what is wrong first, then every group; and the search."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from penstock.core.access import READ
from penstock.core.job import name_of
from penstock.errors import UnknownGroup
from penstock.log.problems import ROWS_MOST, Problem
from penstock.log.stats import GroupStats
from penstock.web.actions import Action, Ask, Done, Plan
from penstock.web.page import Model, Page, Panel, by_id
from penstock.web.view import View

_POINTS: Final = 30
_TOPICS: Final = ("events", "leases", "audit", "runs")


@dataclass(frozen=True, slots=True)
class Line:
    """A group in the table."""

    stats: GroupStats
    retrying: int
    spark: tuple[int | None, ...]


def build(view: View) -> Model:
    """Read problems, groups and streams."""
    found = view.log.survey()
    groups = [one for one in found.stats.groups if _shown(view, one.stream)]
    since = found.now - timedelta(seconds=view.window_seconds)
    sparks = view.log.sparklines(since=since, points=_POINTS) if groups else {}
    lines = [
        Line(one, found.retrying.get((one.stream, one.group), 0), sparks.get((one.stream, one.group), ()))
        for one in groups
    ]
    streams = [one for one in found.stats.streams if _shown(view, one.stream)]
    problems = [one for one in found.problems if _sees(view, one)]
    return {
        "title": "Overview",
        "lines": lines,
        "streams": streams,
        "groups_of": {one.stream: sum(line.stats.stream == one.stream for line in lines) for one in streams},
        "problems": problems,
        "asked_at": found.now,
        "total": _total(lines),
        "panels": by_id(
            Panel("problems", "Problems", view.sql("panel.problems"), view.curl("/v1/problems")),
            Panel("groups", "Groups", view.sql("panel.groups", stream=None), view.curl("/v1/stats")),
            Panel("streams", "Streams", view.sql("panel.streams"), view.curl("/v1/stats")),
        ),
    }


def _shown(view: View, stream: str) -> bool:
    """Jobs have a page of their own."""
    return view.reads(stream) and name_of(stream) is None


def _sees(view: View, problem: Problem) -> bool:
    return view.may(READ, problem.stream)


def _total(lines: list[Line]) -> dict[str, float]:
    return {
        "rate": sum(one.stats.published_per_second for one in lines),
        "lag": sum(one.stats.lag for one in lines),
        "claimed": sum(one.stats.claimed for one in lines),
        "retrying": sum(one.retrying for one in lines),
        "dead": sum(one.stats.dead for one in lines),
        "capped": any(one.stats.dead >= ROWS_MOST for one in lines),
        "retrying_capped": any(one.retrying >= ROWS_MOST for one in lines),
    }


def find(view: View) -> Model:
    """Look for an id, an offset, a key, an error or a name."""
    text = view.text("q").strip()
    found = view.log.search(text, view.reads)
    return {"title": f"Search: {text[:60]}" if text else "Search", "q": text, "found": found}


def _plan_pause(ask: Ask) -> Plan:
    one = _stats(ask)
    if one.paused:
        return Plan(f"It is paused already: {one.pause_reason or 'by hand'}.", possible=False)
    lines = (f"{one.pending:,} wait, and more may arrive.", f"{one.claimed:,} in work: open leases continue.")
    return Plan("Nobody gets new work of this group until it is resumed.", lines=lines)


def _pause(ask: Ask) -> Done:
    ask.view.log.pause(ask.stream, ask.group, reason=ask.reason, by=ask.by)
    return Done()


def _plan_resume(ask: Ask) -> Plan:
    one = _stats(ask)
    if not one.paused:
        return Plan("It is not paused.", possible=False)
    lines = (f"Paused: {one.pause_reason or 'by hand'}.",)
    return Plan(f"Workers go on with {one.pending:,} that wait.", lines=lines)


def _resume(ask: Ask) -> Done:
    ask.view.log.resume(ask.stream, ask.group, reason=ask.reason, by=ask.by)
    return Done()


def _stats(ask: Ask) -> GroupStats:
    for one in ask.view.log.stats(ask.stream, ask.group).groups:
        return one
    raise UnknownGroup(f"There is no group {ask.group!r} on the stream {ask.stream!r}.")


PAGES = (
    Page("/", "overview.html", build, topics=_TOPICS, nav="overview"),
    Page("/search", "search.html", find),
)
ACTIONS = (
    Action("pause", "Pause a group", "Pause", "The group is paused.", _plan_pause, _pause),
    Action("resume", "Resume a group", "Resume", "The group goes on.", _plan_resume, _resume, reason="optional"),
)
