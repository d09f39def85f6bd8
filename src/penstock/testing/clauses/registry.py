"""Every clause with its check, in the order of the pages."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from penstock.testing.clauses.bench import Bench

Check = Callable[[Bench], None]
PAGES = (
    "page_000",
    "page_000_rules",
    "page_001",
    "page_002",
    "page_002_rules",
    "page_002_publish",
    "page_003",
    "page_004",
    "page_004_workers",
)


@dataclass(frozen=True, slots=True)
class Clause:
    """One sentence of a page, and the check that shows it."""

    id: str
    text: str
    check: Check


_known: dict[str, Clause] = {}


def clause(id: str, text: str) -> Callable[[Check], Check]:
    """Register the check of a clause."""

    def register(check: Check) -> Check:
        assert id not in _known, f"two checks are registered for {id}"
        _known[id] = Clause(id, text, check)
        return check

    return register


@cache
def clauses() -> tuple[Clause, ...]:
    """Return all clauses, page by page."""
    for page in PAGES:
        importlib.import_module(f"penstock.testing.clauses.{page}")
    return tuple(sorted(_known.values(), key=lambda one: (one.id[:3], int(one.id[4:]))))
