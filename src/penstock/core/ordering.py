"""Order by key: what a head that did not succeed holds back."""

from __future__ import annotations

from collections.abc import Iterable, Set


def held_back(
    members: Iterable[tuple[int, str | None]], stopped: Iterable[int], called: Set[int] = frozenset()
) -> list[int]:
    """Offsets of members that must be given back because an earlier member of their key stopped.

    `members` are (offset, key) in offset order; `stopped` are the offsets that failed, were released or halt their
    key; `called` are those that did not succeed. One that stands behind another that failed is held back, too: its turn
    had not come. Behind one that was only released it had: what was done before it is given back with its effects.

    >>> held_back([(1, "a"), (2, "b"), (3, "a")], {1})
    [3]
    >>> held_back([(1, "a"), (2, "a"), (3, "a"), (4, "a")], {1, 3, 4}, called={3, 4})
    [2, 4]
    """
    heads = set(stopped)
    closed: dict[str, bool] = {}  # whether the key waits for one that failed
    back: list[int] = []
    for offset, key in members:
        if key is None:
            continue
        if key in closed and (closed[key] or offset not in called):
            back.append(offset)
        elif offset in heads:
            closed[key] = offset in called
    return back
