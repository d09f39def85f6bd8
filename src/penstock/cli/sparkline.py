"""Numbers as a row of little bars."""

from __future__ import annotations

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(numbers: Sequence[float | None]) -> str:
    """The largest number fills its cell; a number that nobody knows is a gap.

    >>> sparkline([0, 4, None, 8])
    '▁▄ █'
    """
    most = max((one for one in numbers if one is not None), default=0)
    return "".join(" " if one is None else _BARS[_height(one, most)] for one in numbers)


def _height(number: float, most: float) -> int:
    return 0 if most <= 0 or number <= 0 else max(0, min(7, round(number / most * 8) - 1))
