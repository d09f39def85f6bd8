"""What an import counts: entries by their states, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.core.imported import Found

Counts = dict[str, Any]


class Tally:
    """Counts that are stored with every batch, so that an import that goes on counts on."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self.copied = int(stored.get("copied", 0))
        self.known = int(stored.get("known", 0))
        self.skipped = int(stored.get("skipped", 0))
        self.reasons: Counter[str] = Counter(stored.get("rejected", {}))
        self.taken = _counters(stored.get("taken", {}))
        self.left = _counters(stored.get("left", {}))

    @property
    def rejected(self) -> int:
        """How many entries cannot be events."""
        return sum(self.reasons.values())

    @property
    def entries(self) -> int:
        """How many entries were read."""
        return self.copied + self.skipped + self.rejected

    def copy(self, found: Found) -> None:
        """Count an entry that becomes an event."""
        self.copied += 1
        _count(self.taken, found)

    def skip(self, found: Found) -> None:
        """Count a finished entry that is left out."""
        self.skipped += 1
        _count(self.left, found)

    def reject(self, found: Found, why: str) -> None:
        """Count an entry that cannot be an event."""
        self.reasons[why] += 1
        _count(self.left, found)

    def stored(self) -> Counts:
        """Return the counts as plain data."""
        return {
            "copied": self.copied,
            "known": self.known,
            "skipped": self.skipped,
            "rejected": dict(self.reasons),
            "taken": {name: dict(one) for name, one in self.taken.items()},
            "left": {name: dict(one) for name, one in self.left.items()},
        }


def key_of(stream: str, group: str) -> str:
    """Return the name of a group among the counts; streams have no slash."""
    return f"{stream}/{group}"


def _counters(stored: Mapping[str, Mapping[str, int]]) -> dict[str, Counter[str]]:
    return {name: Counter(one) for name, one in stored.items()}


def _count(counters: dict[str, Counter[str]], found: Found) -> None:
    for group, was in found.states.items():
        counters.setdefault(key_of(found.stream, group), Counter())[was.state.value] += 1
