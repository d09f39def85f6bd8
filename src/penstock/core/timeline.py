"""Time in buckets of equal length: the rules of a series, and how long numbers are kept at which width."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.core import limits
from penstock.core.moments import EPOCH
from penstock.errors import InvalidInput

MINUTE: Final = 60
TEN_MINUTES: Final = 600
HOUR: Final = 3_600
DAY: Final = 86_400
SET_BACK: Final = timedelta(hours=1)  # what is planned for so much later was planned by a clock that was wrong
_STEPS: Final = (60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, DAY, 2 * DAY, 4 * DAY)
_AGES: Final = (  # a row is at most so wide before it is so old
    (timedelta(days=limits.METRIC_MINUTES_DAYS), MINUTE),
    (timedelta(days=limits.METRIC_TEN_MINUTES_DAYS), TEN_MINUTES),
    (timedelta(days=limits.METRIC_DAYS), HOUR),
)


def start_of(moment: datetime, seconds: int) -> datetime:
    """Return where the bucket of a time begins; buckets are counted from 1970.

    >>> from datetime import UTC
    >>> start_of(datetime(2026, 1, 1, 12, 34, 56, tzinfo=UTC), 600)
    datetime.datetime(2026, 1, 1, 12, 30, tzinfo=datetime.timezone.utc)
    """
    return EPOCH + (moment - EPOCH) // timedelta(seconds=seconds) * timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time in buckets."""

    since: datetime
    until: datetime
    step_seconds: int

    @property
    def step(self) -> timedelta:
        """The length of a bucket."""
        return timedelta(seconds=self.step_seconds)

    @property
    def points(self) -> int:
        """The number of buckets."""
        return (self.until - self.since) // self.step

    def bucket(self, moment: datetime) -> int | None:
        """Return the bucket of a time; None if it is outside."""
        return (moment - self.since) // self.step if self.since <= moment < self.until else None


def window(now: datetime, since: datetime | None, until: datetime | None, step_seconds: Any) -> Window:
    """Return the buckets from the one of `since` to the one of `until`; `InvalidInput` if there are none, or too many.

    Without `since` it is the hour before `until`; without `until` it ends with the last complete bucket.
    """
    end = now if until is None else min(until, now)
    _check_kept(now, end, "until")
    begin = _checked_begin(now, end - timedelta(hours=1) if since is None else since)
    if begin >= end:
        raise InvalidInput("until must lie after since.")
    step = _chosen(now, begin, end) if step_seconds is None else _checked(now, begin, step_seconds)
    low, high = start_of(begin, step), start_of(end, step)
    if until is not None and high < end:
        high += timedelta(seconds=step)
    found = Window(low, high, step)
    if found.points < 1:
        raise InvalidInput(f"No bucket of {step} seconds between since and now is complete: pass until=, or less.")
    if found.points > limits.SERIES_POINTS:
        least = _fitting(end - begin, _width_at(now, begin), limits.SERIES_POINTS)
        words = f"{found.points} points are more than {limits.SERIES_POINTS}"
        raise InvalidInput(f"{words}: take a step of at least {least} seconds, or a shorter time.")
    return found


def recent(now: datetime, since: datetime | None, points: int) -> Window:
    """Return as many buckets up to the last complete minute; they reach back to `since` or a little further."""
    begin = _checked_begin(now, now - timedelta(hours=1) if since is None else since)
    least = max(1, -((begin - now) // timedelta(seconds=points)))  # rounded up
    for width in (MINUTE, TEN_MINUTES, HOUR):
        step = -(-least // width) * width
        until = start_of(now, width)
        found = Window(until - timedelta(seconds=step * points), until, step)
        if _width_at(now, found.since) <= width:
            break
    return found


def _checked_begin(now: datetime, begin: datetime) -> datetime:
    if begin >= now:
        raise InvalidInput("since must lie in the past.")
    _check_kept(now, begin, "since")
    return begin


def _check_kept(now: datetime, moment: datetime, what: str) -> None:
    if moment < now - timedelta(days=limits.METRIC_DAYS):
        raise InvalidInput(f"{what} lies more than {limits.METRIC_DAYS} days back; older numbers are not kept.")


def _width_at(now: datetime, since: datetime) -> int:
    """Return how wide rows may be that begin at a time."""
    return next((width for age, width in _AGES if since >= now - age), HOUR)


def _checked(now: datetime, begin: datetime, step: Any) -> int:
    if isinstance(step, bool) or not isinstance(step, int) or not MINUTE <= step <= limits.METRIC_DAYS * DAY:
        raise InvalidInput(f"step_seconds must be a whole number of at least {MINUTE}, not {str(step)[:60]}.")
    width = _width_at(now, start_of(begin, step))
    if step % width:
        why = "" if width == MINUTE else ": what lies so far back is kept no finer"
        raise InvalidInput(f"step_seconds must be a multiple of {width}, not {step}{why}.")
    return step


def _chosen(now: datetime, begin: datetime, end: datetime) -> int:
    step = _fitting(end - begin, _width_at(now, begin), limits.SERIES_POINTS_DEFAULT)
    width = _width_at(now, start_of(begin, step))
    return step if step % width == 0 else _fitting(end - begin, width, limits.SERIES_POINTS_DEFAULT)


def _fitting(length: timedelta, width: int, points: int) -> int:
    """Return the least usual step that makes no more points than that."""
    fit = (step for step in _STEPS if step % width == 0 and length / timedelta(seconds=step) <= points - 1)
    return next(fit, _STEPS[-1])
