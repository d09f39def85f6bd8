"""Order by key: which events an unsuccessful one holds back."""

from __future__ import annotations

from collections.abc import Iterable, Set


def held_back(
    members: Iterable[tuple[int, str | None]], stopped: Iterable[int], called: Set[int] = frozenset()
) -> list[int]:
    """Return the offsets of members that must be released because an earlier member of their key stopped.

    `members` are (offset, key) in offset order; `stopped` are the offsets that failed, were released or halt their
    key; `called` are those that were handled without success. A member of `called` is held back, too, if an earlier
    one of its key failed: it was handled too early. If the earlier one was only released, its outcome counts.

    >>> held_back([(1, "a"), (2, "b"), (3, "a")], {1})
    [3]
    >>> held_back([(1, "a"), (2, "a"), (3, "a"), (4, "a")], {1, 3, 4}, called={3, 4})
    [2, 4]
    """
    heads = set(stopped)
    closed: dict[str, bool] = {}  # stopped keys; true if the member that stopped it failed
    back: list[int] = []
    for offset, key in members:
        if key is None:
            continue
        if key in closed and (closed[key] or offset not in called):
            back.append(offset)
        elif offset in heads:
            closed[key] = offset in called
    return back
