"""When a schedule runs: a cron expression in a time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.errors import InvalidSchedule, MissingDependency

_FIELDS = 5  # minute, hour, day, month, weekday


def runs_after(cron: str, tz: str, moment: datetime) -> Iterator[datetime]:
    """Yield the times, in UTC, at which a schedule runs after a moment; `InvalidSchedule` if it is not understood.

    >>> start = datetime(2026, 3, 28, 12, tzinfo=UTC)  # clocks change in the night
    >>> [one.hour for one in islice(runs_after("0 3 * * *", "Europe/Berlin", start), 2)]
    [1, 1]
    """
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise MissingDependency("Schedules need pip install 'penstock[jobs]'.") from error
    if not isinstance(cron, str) or len(cron.split()) != _FIELDS:
        raise InvalidSchedule(f"{str(cron)[:60]!r} is not a cron expression of five fields.")
    try:
        times = CronSim(cron, moment.astimezone(_zone(tz)))
    except (CronSimError, TypeError, AttributeError) as error:
        raise InvalidSchedule(f"{str(cron)[:60]!r} is not a cron expression: {error}.") from error
    return (one.astimezone(UTC) for one in times)


def first_after(cron: str, tz: str, moment: datetime) -> datetime:
    """Return the first time after a moment; `InvalidSchedule` if there is none within 50 years."""
    found = next(runs_after(cron, tz, moment), None)
    if found is None:
        raise InvalidSchedule(f"{cron!r} never runs.")
    return found


def latest_upto(cron: str, tz: str, due: datetime, now: datetime) -> datetime:
    """Return the latest time up to now of a schedule that was due: what was missed is made up for by one run."""
    latest = due
    for one in runs_after(cron, tz, due):
        if one > now:
            break
        latest = one
    return latest


def next_runs(cron: str, tz: str, moment: datetime, count: int) -> list[datetime]:
    """Return the next times after a moment."""
    return list(islice(runs_after(cron, tz, moment), count))


def _zone(tz: Any) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise InvalidSchedule(f"{str(tz)[:60]!r} is not a time zone.") from error
