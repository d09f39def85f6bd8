"""Order by key: what a head that did not succeed holds back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def held_back(members: Iterable[tuple[int, str | None]], stopped: Mapping[int, bool] | Iterable[int]) -> list[int]:
    """Offsets of members that must be given back because an earlier member of their key stopped.

    `members` are (offset, key) in offset order; `stopped` are the offsets that failed, were released or halt their
    key. A stopped member that stands behind another of its key is held back, too: its turn had not come.

    >>> held_back([(1, "a"), (2, "b"), (3, "a")], {1})
    [3]
    """
    heads = set(stopped)
    closed: set[str] = set()
    back: list[int] = []
    for offset, key in members:
        if key is None:
            continue
        if key in closed:
            back.append(offset)
        elif offset in heads:
            closed.add(key)
    return back
