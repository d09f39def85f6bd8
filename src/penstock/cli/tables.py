"""How wide the columns of a table are: numbers are never cut, and text that is cut ends in `…`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2  # letters between two columns
_NARROWEST = 8  # letters of a column that is cut
_PICTURE = 5  # … of one without a heading, such as a progress bar
_COMFORTABLE = 18  # below this, columns that may be left out are left out


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its place among the cells, its heading, and the width that shows all of it."""

    place: int
    name: str
    width: int
    right: bool = False
    cut: bool = False  # where space is short
    optional: bool = False  # left out where space is short

    @classmethod
    def of(cls, place: int, spec: str, widths: Sequence[int]) -> Column:
        """`>name` is right-aligned, `name…` is cut where space is short, `name?` is then left out."""
        name = spec.strip(">…?")
        width = max([len(name), *widths]) if any(widths) else 0  # nothing to show
        return cls(place, name, width, spec.startswith(">"), "…" in spec, spec.endswith("?"))

    def least(self, shortest: int) -> int:
        """The width it needs if it may be cut down to `shortest`."""
        if not self.cut:
            return self.width
        return min(self.width, shortest if self.name else min(shortest, _PICTURE))


def layout(columns: Sequence[Column], width: int) -> dict[Column, int] | None:
    """The columns to show, with their widths; None if they do not fit beside each other."""
    shown = [one for one in columns if one.width]
    while _needed(shown, _COMFORTABLE) > width and (optional := [one for one in shown if one.optional]):
        shown.remove(optional[-1])
    if _needed(shown, _NARROWEST) > width:
        return None
    spare = width - _needed(shown, 0)
    widths = {one: one.width for one in shown}
    cut = sorted((one for one in shown if one.cut), key=lambda one: one.width)
    for number, one in enumerate(cut):  # the short ones first: what they do not need is left for the long ones
        widths[one] = min(one.width, spare // (len(cut) - number))
        spare -= widths[one]
    return widths


def _needed(columns: Sequence[Column], shortest: int) -> int:
    return sum(one.least(shortest) for one in columns) + GAP * max(0, len(columns) - 1)
