"""An event's life as lanes of time, one per group, in SVG. Time is wide where much happens, else narrow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from penstock.core.delivery import State
from penstock.log.deliveries import Attempt
from penstock.log.life import GroupLife, HeldBy, Life
from penstock.web.words import number, short, span

ROW: Final = 46  # height of a lane, as in the stylesheet
_TOP: Final = 26  # for the times
_LEFT, _RIGHT = 14, 24
_WIDE: Final = 1_060
_LETTER: Final = 6.3
_MOST: Final = 40  # marks of a lane: of more, the first and the newest
_CLOCK_ROOM: Final = 84
_AGAIN: Final = frozenset({"redriven", "replayed", "rewound"})
_KINDS: Final = {  # of what happened: a class of the stylesheet, what is written, and the state from then on
    "claimed": ("claim", "claim", State.CLAIMED),
    "kept": ("claim", "kept", State.CLAIMED),
    "published": ("done", "PUBLISHED", State.PUBLISHED),
    "failed": ("fail", "", State.PENDING),
    "dead": ("dead", " DEAD", State.DEAD),
    "expired": ("fail", "lease expired", State.PENDING),
    "redriven": ("again", "redrive", State.PENDING),
    "replayed": ("again", "replay", State.PENDING),
    "rewound": ("again", "rewind", State.PENDING),
    "rescheduled": ("people", "rescheduled", State.PENDING),
    **{one: ("people", one, State.DEAD) for one in ("killed", "skipped", "purged", "mended")},
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a moment; `after` is the state from then on."""

    at: datetime
    kind: str  # a class of the stylesheet: claim, fail, dead, done, again, people, back, more
    label: str
    title: str
    after: State


@dataclass(frozen=True, slots=True)
class Lane:
    """One group's row."""

    group: str
    state: State
    marks: tuple[Mark, ...]
    rest: str  # what it waits for, at its end
    last_error: str | None


def lanes_of(life: Life, now: datetime) -> list[Lane]:
    """Return a lane per group, those with trouble first."""
    rank = {State.DEAD: 0, State.CLAIMED: 1, State.PENDING: 2, State.PUBLISHED: 3}
    found = [_lane(one, life, now) for one in life.groups]
    return sorted(found, key=lambda lane: (rank[lane.state], lane.group))


def _lane(one: GroupLife, life: Life, now: datetime) -> Lane:
    marks = tuple(_marks(one, life))
    if len(marks) > _MOST:
        left_out = len(marks) - _MOST + 1
        gap = marks[2]
        more = Mark(
            gap.at, "more", f"… {left_out} more", f"{left_out} more transitions; all are in the table", gap.after
        )
        marks = (*marks[:2], more, *marks[2 + left_out :])
    return Lane(one.group, one.state, marks, _rest(one, now), one.last_error)


def _marks(one: GroupLife, life: Life) -> Iterator[Mark]:
    again = [line for line in one.history if line.outcome in _AGAIN]
    for line in one.history:
        operation = one.operation if again and line is again[-1] else None
        yield _mark(line, life.leases.get(line.lease or 0), operation)


def _mark(line: Attempt, lease: HeldBy | None, operation: int | None) -> Mark:
    outcome = line.outcome
    when = f"{line.at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + "Z"
    by = f" by {line.by}" if line.by else ""
    said = f": {short(line.error, 200)}" if line.error else ""
    kind, label, after = _KINDS.get(outcome, ("back", outcome, State.PENDING))
    title = f"{when}  {outcome}{by}{said}"
    if kind == "claim":
        many = f" (one of {number(lease.members)})" if lease is not None and lease.members > 1 else ""
        label = f"{label} #{line.lease}{many}"
        title = f"{when}  {outcome}{by}, attempt {line.attempt}, lease #{line.lease}{many}"
    elif outcome in ("failed", "dead"):
        label = f"{short(_name_of(line), 22)}{label}"
        title = f"{when}  {outcome.upper()}, failure {line.failures}{said}"
    elif kind == "again" and operation is not None:
        label, title = f"{label} op #{operation}", f"{title}, operation #{operation}"
    return Mark(line.at, kind, label, title, after)


def _name_of(line: Attempt) -> str:
    """Return the name of an error, without its module."""
    return (line.error_type or line.error_code or "error").rpartition(".")[2]


def _rest(one: GroupLife, now: datetime) -> str:
    """Say what a delivery waits for."""
    if one.state is State.CLAIMED:
        return f"CLAIMED by {short(one.claimed_by or '', 30)}"
    if one.state is not State.PENDING:
        return ""
    if one.before is not None:
        return f"PENDING: {number(one.before, one.before_capped)} before it" if one.before else "PENDING: next in line"
    due = one.available_at
    if due is not None and due > now:
        what = "retry" if one.failures else (one.reason or "due")
        return f"PENDING: {what} in {span((due - now).total_seconds())}"
    return f"PENDING: {one.reason}" if one.reason else "PENDING"


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(lanes: Sequence[Lane], born: datetime, now: datetime) -> Markup:
    """Draw lanes over one axis of time; `born` is when the event was appended."""
    open_ended = any(lane.rest for lane in lanes)
    places = _places(lanes, born, now if open_ended else None)
    width = int(max(places.values()) + max((_room(lane) for lane in lanes), default=0) + _RIGHT)
    height = _TOP + ROW * len(lanes) + 4
    rows = "".join(_row(lane, _TOP + ROW * place, places, born, now) for place, lane in enumerate(lanes))
    said = f"What happened to this event in {len(lanes)} groups, from {born.astimezone(UTC):%H:%M:%S} on"
    return Markup(
        f'<svg class="life-lanes" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(said)}">{_clocks(places, born, height)}{rows}</svg>'
    )


def _room(lane: Lane) -> float:
    """Return how much room the last words of a lane take, right of the last place."""
    last = lane.rest or (lane.marks[-1].label if lane.marks else "")
    return _letters(last) + 14


def _letters(text: str) -> float:
    return len(text) * _LETTER


def _places(lanes: Sequence[Lane], born: datetime, end: datetime | None) -> dict[datetime, float]:
    """Place every moment: later ones to the right, no label over the next one of its lane, all of it wide enough."""
    moments = sorted({born, *(mark.at for lane in lanes for mark in lane.marks), *(() if end is None else (end,))})
    at = {lane.group: {mark.at: mark for mark in lane.marks} for lane in lanes}
    places = {moments[0]: float(_LEFT)}
    free = dict.fromkeys(at, 0.0)  # from where on a lane's next label may begin
    for moment in moments:
        if moment is not moments[0]:
            before = moments[moments.index(moment) - 1]
            places[moment] = places[before] + _gap((moment - before).total_seconds())
        for group, marks in at.items():
            if moment in marks or moment == end:
                places[moment] = max(places[moment], free[group])
        for group, marks in at.items():
            if moment in marks:
                free[group] = places[moment] + _letters(_last_label(lanes, group, moment)) + 26
    return _stretched(places, _WIDE - max((_room(lane) for lane in lanes), default=0))


def _last_label(lanes: Sequence[Lane], group: str, moment: datetime) -> str:
    labels = [mark.label for lane in lanes if lane.group == group for mark in lane.marks if mark.at == moment]
    return " ".join(labels)


def _gap(seconds: float) -> float:
    """Return how wide a time is drawn: a millisecond is narrow, a minute is not sixty times a second.

    >>> [round(_gap(seconds)) for seconds in (0.001, 1, 60, 86_400)]
    [14, 34, 69, 120]
    """
    return 14 + min(150.0, 20 * math.log10(1 + 9 * max(0.0, seconds)))


def _stretched(places: dict[datetime, float], wide: float) -> dict[datetime, float]:
    last = max(places.values())
    factor = max(1.0, (wide - _LEFT) / max(1.0, last - _LEFT)) if last > _LEFT else 1.0
    return {moment: _LEFT + (place - _LEFT) * factor for moment, place in places.items()}


def _clocks(places: dict[datetime, float], born: datetime, height: int) -> str:
    found, free = [], 0.0
    for moment, x in sorted(places.items()):
        found.append(f'<path class="tick" d="M{x:.1f} {_TOP - 4}V{height}"/>')
        if x >= free:
            found.append(f'<text class="clock" x="{x:.1f}" y="13">{_clock(moment, places)}</text>')
            free = x + _CLOCK_ROOM
    found.append(
        f'<circle class="born" cx="{places[born]:.1f}" cy="{_TOP - 4}" r="2.5"><title>appended</title></circle>'
    )
    return "".join(found)


def _clock(moment: datetime, all_of_them: Iterable[datetime]) -> str:
    """Write a time as exactly as the whole life needs it."""
    first, last = min(all_of_them), max(all_of_them)
    at = moment.astimezone(UTC)
    if (last - first).total_seconds() < 60:
        return f"{at:%H:%M:%S.%f}"[:-3]
    return at.strftime("%H:%M:%S" if first.astimezone(UTC).date() == last.astimezone(UTC).date() else "%d %b %H:%M")


def _row(lane: Lane, y: float, places: dict[datetime, float], born: datetime, now: datetime) -> str:
    middle = y + 31
    found, x, state = [], places[born], State.PENDING
    for mark, labels in _together(lane.marks):
        here = places[mark.at]
        found.append(_line(x, here, middle, state))
        found.append(_shape(mark, here, middle, labels))
        x, state = here, mark.after
    if lane.rest:
        end = places.get(now, x)
        found.append(_line(x, end, middle, state))
        kind = "claimed" if state is State.CLAIMED else "pending"
        found.append(
            f'<g class="mark mark-{kind}"><circle class="rest" cx="{end:.1f}" cy="{middle}" r="4.5"/>'
            f'<text x="{end + 10:.1f}" y="{middle + 4}">{escape(lane.rest)}</text></g>'
        )
    return f'<g class="lane">{"".join(found)}</g>'


def _together(marks: Iterable[Mark]) -> Iterator[tuple[Mark, str]]:
    """Yield the last mark of every moment with the labels of all marks of it."""
    held: list[Mark] = []
    for mark in marks:
        if held and mark.at != held[0].at:
            yield held[-1], " ".join(one.label for one in held)
            held = []
        held.append(mark)
    if held:
        yield held[-1], " ".join(one.label for one in held)


def _line(x: float, end: float, y: float, state: State) -> str:
    return "" if end <= x else f'<path class="run run-{state.lower()}" d="M{x:.1f} {y}H{end:.1f}"/>'


def _shape(mark: Mark, x: float, y: float, label: str) -> str:
    shapes = {
        "claim": f'<path class="solid" d="M{x:.1f} {y - 6}v12"/>',
        "fail": f'<path d="M{x - 4:.1f} {y - 4}l8 8m0 -8l-8 8"/>',
        "dead": f'<path d="M{x - 5:.1f} {y - 5}l10 10m0 -10l-10 10"/>',
        "done": f'<circle class="solid" cx="{x:.1f}" cy="{y}" r="5"/>',
        "again": f'<path class="solid" d="M{x - 4:.1f} {y - 6}l9 6l-9 6z"/>',
        "people": f'<path d="M{x:.1f} {y - 6}l6 6l-6 6l-6 -6z"/>',
    }
    drawn = shapes.get(mark.kind, f'<circle cx="{x:.1f}" cy="{y}" r="3.5"/>')
    return (
        f'<g class="mark mark-{mark.kind}"><title>{escape(mark.title)}</title>'
        f'<rect class="hit" x="{x - 8:.1f}" y="{y - 26}" width="{_letters(label) + 16:.0f}" height="36"/>'
        f'{drawn}<text x="{x - 5:.1f}" y="{y - 13}">{escape(label)}</text></g>'
    )
