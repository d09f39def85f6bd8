"""Which columns of its source a plan uses. Spark does not tell sources that are written in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

IsSource = Callable[[Any], bool]


def used_columns(plan: Any, is_source: IsSource) -> set[str]:
    """Return the columns of the source that an optimized plan uses, or has in its result."""
    asked = {key for key, _ in (*_attributes(plan.output()), *_references(plan, is_source))}
    return {name for key, name in _outputs(plan, is_source) if key in asked}


def kind(plan: Any) -> str:
    """Return the name of a node's class."""
    return str(plan.getClass().getSimpleName())


def _outputs(plan: Any, is_source: IsSource) -> Iterator[tuple[int, str]]:
    if is_source(plan):
        yield from _attributes(plan.output())
        return
    for place in range(plan.children().size()):
        yield from _outputs(plan.children().apply(place), is_source)


def _references(plan: Any, is_source: IsSource) -> Iterator[tuple[int, str]]:
    if is_source(plan):
        return
    yield from _attributes(plan.references().toSeq())
    for place in range(plan.children().size()):
        yield from _references(plan.children().apply(place), is_source)


def _attributes(some: Any) -> Iterator[tuple[int, str]]:
    for place in range(some.size()):
        one = some.apply(place)
        yield int(one.exprId().id()), str(one.name())
