"""Jobs: queues, types, the jobs themselves, schedules with their next runs, and the workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

from penstock.core.delivery import State
from penstock.core.job import GROUP, Job, JobName, name_of
from penstock.log.jobs.schedules import Schedule
from penstock.log.stats import GroupStats, Stats
from penstock.web.page import Model, Page, Panel, by_id
from penstock.web.view import View

_LIMIT: Final = 40
_RUNS: Final = 3  # of a schedule, the next ones
_WORKERS: Final = 200


@dataclass(frozen=True, slots=True)
class TypeLine:
    """The jobs of a type in a queue, of all priorities."""

    type: str
    queue: str
    pending: int = 0
    claimed: int = 0
    dead: int = 0
    completed: int = 0
    rate: float = 0.0
    oldest_seconds: float | None = None
    paused: str | None = None  # why
    groups: tuple[str, ...] = ()  # streams with a group, which can be paused

    def plus(self, one: GroupStats) -> TypeLine:
        """Add the jobs of a priority."""
        ages = [age for age in (self.oldest_seconds, one.oldest_seconds) if age is not None]
        return TypeLine(
            self.type,
            self.queue,
            self.pending + one.pending,
            self.claimed + one.claimed,
            self.dead + (one.exhausted_total or 0),
            self.completed + (one.completed_total or 0),
            self.rate + one.published_per_second,
            max(ages, default=None),
            self.paused or ((one.pause_reason or "by hand") if one.paused else None),
            (*self.groups, one.stream),
        )


def lines_of(view: View, stats: Stats) -> list[TypeLine]:
    """Return the types of jobs that may be looked at; one that nobody has claimed from yet only waits."""
    found: dict[tuple[str, str], TypeLine] = {}
    served = set()
    for one in stats.groups:
        name = name_of(one.stream)
        if name is not None and one.group == GROUP and view.reads(one.stream):
            served.add(one.stream)
            key = (name.queue, name.type)
            found[key] = found.get(key, TypeLine(name.type, name.queue)).plus(one)
    for stream in stats.streams:
        name = name_of(stream.stream)
        if name is not None and stream.stream not in served and view.reads(stream.stream):
            key = (name.queue, name.type)
            known = found.get(key, TypeLine(name.type, name.queue))
            waiting = GroupStats(stream.stream, GROUP, stream.events, 0, 0, 0, 0, None, False, None, 0, 0.0)
            found[key] = replace(known.plus(waiting), groups=known.groups)
    return [found[key] for key in sorted(found)]


def build(view: View) -> Model:
    """Read everything about jobs that may be looked at."""
    lines = lines_of(view, view.log.stats(group=GROUP))
    chosen = {name: view.text(name) or None for name in ("queue", "type", "state")}
    cursor = view.whole("cursor") or None
    page = view.log.job_page(
        queue=chosen["queue"], type=chosen["type"], state=chosen["state"], cursor=cursor, limit=_LIMIT
    )
    found = [one for one in page.jobs if view.reads(one.stream)]
    schedules = [one for one in view.log.schedules() if view.reads(stream_of(one))]
    everywhere = view.may("read")
    runs = view.log.runs()[:_WORKERS] if everywhere else []
    return {
        "title": "Jobs",
        "lines": lines,
        "queues": _queues(lines),
        "chosen": chosen,
        "filtered": any(chosen.values()) or cursor is not None,
        "states": [*State],
        "page_of_jobs": page,
        "found": found,
        "schedules": [(one, stream_of(one), one.next_runs(_RUNS)) for one in schedules],
        "workers": [one for one in runs if _runs_jobs(one.groups)],
        "others": [one for one in runs if not _runs_jobs(one.groups)],
        "sees_workers": everywhere,
        "read_at": datetime.now(UTC),
        "panels": _panels(view, chosen, page.ascending, found),
    }


def stream_of(one: Schedule) -> str:
    """Return the stream of a schedule's jobs."""
    return JobName(one.queue, one.priority, one.type).stream


def _runs_jobs(groups: tuple[str, ...]) -> bool:
    return any("/" not in one or one.startswith("jobs:") for one in groups)


def _queues(lines: list[TypeLine]) -> list[Mapping[str, Any]]:
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"pending": 0, "claimed": 0, "dead": 0, "types": 0})
    for line in lines:
        one = found[line.queue]
        one["pending"] += line.pending
        one["claimed"] += line.claimed
        one["dead"] += line.dead
        one["types"] += 1
    return [{"queue": queue, **found[queue]} for queue in sorted(found)]


def _panels(view: View, chosen: Mapping[str, str | None], ascending: bool, jobs: Sequence[Job]) -> SimpleNamespace:
    offsets = [one.offset for one in jobs]
    order = "in the order of their submission" if ascending else "newest first"
    return by_id(
        Panel("types", "Types", view.sql("jobs.panel_types"), view.curl("/v1/stats")),
        Panel("jobs", "Jobs", view.sql("jobs.show", offsets=offsets), view.curl("/v1/jobs", **chosen), about=order),
        Panel("schedules", "Schedules", view.sql("schedule.all", name=None), view.curl("/v1/schedules")),
        Panel("workers", "Workers", view.sql("run.list", everything=False), view.curl("/v1/runs")),
    )


PAGES = (Page("/jobs", "jobs.html", build, topics=("events", "leases", "audit", "runs"), nav="jobs"),)
