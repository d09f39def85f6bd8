"""Run every clause's check and report the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.testing.clauses.bench import bench
from penstock.testing.clauses.registry import clauses


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one clause: whether it holds, or why not."""

    id: str
    text: str
    error: str | None = None

    @property
    def holds(self) -> bool:
        return self.error is None


def run(url: str, page: str | None = None) -> Iterator[Result]:
    """Check all clauses, or those of one page ("000"), against a scratch log in the database of `url`."""
    with bench(url) as made:
        for one in clauses():
            if page is not None and not one.id.startswith(f"{page}-"):
                continue
            made.begin(one.id)
            try:
                one.check(made)
            except Exception as error:
                yield Result(one.id, one.text, f"{type(error).__name__}: {error}"[:500])
            else:
                yield Result(one.id, one.text)
