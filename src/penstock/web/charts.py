"""Charts as SVG: lines, areas and bars with gaps as gaps. Nothing needs a script: hovering shows a title."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from penstock.web.words import number

Value = float | None
_WIDE, _NARROW, _HEIGHT = 560, 320, 124
_LEFT, _RIGHT, _TOP, _BOTTOM = 4, 4, 16, 18  # around the drawing
_SPARK: Final = (96, 22)


def sparkline(values: Sequence[Value], about: str) -> Markup:
    """Draw a few values as bars, without axes; None leaves a gap. The title says what they are, and their sum."""
    width, height = _SPARK
    known = [one for one in values if one is not None]
    top = max(known, default=0) or 1
    step = width / max(1, len(values))
    wide = f"{max(1.0, step - 0.7):.1f}"
    bars, zeros = [], []
    for place, value in enumerate(values):
        if value is None:
            continue
        begin = f"M{place * step:.1f} {height}h{wide}"
        if value > 0:
            bars.append(f"{begin}v-{max(2.0, value / top * height):.1f}h-{wide}z")
        else:
            zeros.append(f"{begin}v-1h-{wide}z")
    said = escape(f"{about}: {number(sum(known))}")
    return Markup(
        f'<svg class="spark" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{said}"><title>{said}</title><path class="bar" d="{"".join(bars)}"/>'
        f'<path class="zero" d="{"".join(zeros)}"/></svg>'
    )


def chart(
    label: str,
    times: Sequence[datetime],
    values: Sequence[Value],
    *,
    tone: str = "flow",
    bars: bool = False,
    narrow: bool = False,
    write: Callable[[float | None], str] = number,
) -> Markup:
    """Draw values over time with axes; `tone` is a class of the stylesheet (flow, lag, age, dead), None is a gap."""
    known = [one for one in values if one is not None]
    top = _nice(max(known, default=0))
    now = write(known[-1]) if known else "no data"
    said = escape(f"{label}: {now} now, {write(max(known))} at most" if known else f"{label}: no data yet")
    wide = _NARROW if narrow else _WIDE
    shape = _bars(values, top, wide) if bars else _area(values, top, wide)
    return Markup(
        f'<svg class="chart tone-{escape(tone)}" viewBox="0 0 {wide} {_HEIGHT}" role="img" aria-label="{said}">'
        f"{_axes(times, top, wide, write)}{shape}{''.join(_hits(times, values, wide, write))}"
        f"{'' if known else _empty(wide)}</svg>"
    )


def _nice(most: float) -> float:
    """Return a round number that is not smaller."""
    if most <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(most))
    return next(step * size for step in (1, 1.5, 2, 3, 4, 5, 8, 10) if step * size >= most * 0.9999)


def _x(place: float, count: int, wide: int) -> float:
    return _LEFT + (wide - _LEFT - _RIGHT) * (place + 0.5) / max(1, count)


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(1.0, max(0.0, value / top))


def _pieces(values: Sequence[Value]) -> Iterator[list[tuple[int, float]]]:
    """Split values at gaps."""
    piece: list[tuple[int, float]] = []
    for place, value in enumerate(values):
        if value is not None:
            piece.append((place, value))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _area(values: Sequence[Value], top: float, wide: int) -> str:
    found, floor = [], _HEIGHT - _BOTTOM
    for piece in _pieces(values):
        points = [(_x(place, len(values), wide), _y(value, top)) for place, value in piece]
        if len(points) == 1:
            found.append(f'<circle class="dot" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="2"/>')
            continue
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        found.append(f'<path class="area" d="M{points[0][0]:.1f} {floor}L{path}L{points[-1][0]:.1f} {floor}z"/>')
        found.append(f'<path class="line" d="M{path}"/>')
    return "".join(found)


def _bars(values: Sequence[Value], top: float, wide: int) -> str:
    step = (wide - _LEFT - _RIGHT) / max(1, len(values))
    found = []
    for place, value in enumerate(values):
        if value:
            y = _y(value, top)
            found.append(
                f'<rect class="bar" x="{_LEFT + place * step:.1f}" y="{y:.1f}" width="{max(1.0, step - 0.8):.1f}" '
                f'height="{max(1.0, _HEIGHT - _BOTTOM - y):.1f}"/>'
            )
    return "".join(found)


def _axes(times: Sequence[datetime], top: float, wide: int, write: Callable[[float | None], str]) -> str:
    floor = _HEIGHT - _BOTTOM
    found = [f'<path class="axis" d="M{_LEFT} {floor}H{wide - _RIGHT}"/>']
    middle = _y(top / 2, top)
    found.append(f'<path class="grid" d="M{_LEFT} {_TOP}H{wide - _RIGHT}M{_LEFT} {middle:.1f}H{wide - _RIGHT}"/>')
    found.append(f'<text class="most" x="{_LEFT}" y="{_TOP - 4}">{escape(write(top))}</text>')
    if times:
        marks = {0: "start", len(times) // 2: "middle", len(times) - 1: "end"} if len(times) > 2 else {0: "start"}
        for place, anchor in marks.items():
            x = {"start": _LEFT, "middle": _x(place, len(times), wide), "end": wide - _RIGHT}[anchor]
            text = _clock(times[place], times)
            found.append(f'<text x="{x:.0f}" y="{_HEIGHT - 5}" text-anchor="{anchor}">{text}</text>')
    return "".join(found)


def _clock(at: datetime, times: Sequence[datetime]) -> str:
    long = len(times) > 1 and (times[-1] - times[0]).total_seconds() > 2 * 86_400
    return at.astimezone(UTC).strftime("%d %b" if long else "%H:%M")


def _hits(
    times: Sequence[datetime], values: Sequence[Value], wide: int, write: Callable[[float | None], str]
) -> Iterator[str]:
    step = (wide - _LEFT - _RIGHT) / max(1, len(values))
    for place, (at, value) in enumerate(zip(times, values, strict=False)):
        said = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z  {'nobody looked' if value is None else write(value)}"
        yield (
            f'<rect class="hit" x="{_LEFT + place * step:.1f}" y="{_TOP}" width="{step:.1f}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}"><title>{said}</title></rect>'
        )


def _empty(wide: int) -> str:
    return f'<text class="empty" x="{wide / 2:.0f}" y="{_HEIGHT / 2:.0f}" text-anchor="middle">no data yet</text>'
