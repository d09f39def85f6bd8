"""Series as charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from penstock.log.series import Point, Series
from penstock.web import charts, words


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart and the number that it ends with."""

    label: str
    now: str
    svg: Markup


def appended(found: Series) -> Chart:
    """Draw what was appended to a stream, a second."""
    return _chart("appended a second", found, [one.appended for one in found.points], per_second=True)


def of_group(found: Series) -> list[Chart]:
    """Draw what a group did and how it stood."""
    points = found.points
    return [
        _chart("published a second", found, [one.published for one in points], per_second=True),
        _chart("lag", found, [one.lag for one in points], tone="lag"),
        _chart("oldest", found, [one.oldest_seconds for one in points], tone="age", age=True),
        _chart("failed and dead", found, [_ended_badly(one) for one in points], tone="dead", bars=True),
    ]


def _ended_badly(one: Point) -> int | None:
    return None if one.failed is None else one.failed + (one.dead or 0)


def _chart(
    label: str,
    found: Series,
    values: Sequence[float | None],
    *,
    tone: str = "flow",
    per_second: bool = False,
    age: bool = False,
    bars: bool = False,
) -> Chart:
    write = words.span if age else words.rate if per_second else words.number
    step = found.step_seconds if per_second else 1
    drawn = [None if one is None else one / step for one in values]
    times = [one.at for one in found.points]
    now = next((one for one in reversed(drawn) if one is not None), None)
    return Chart(
        label,
        write(now),
        charts.chart(label, times, drawn, tone=tone, bars=bars, write=write, narrow=found.group is not None),
    )
