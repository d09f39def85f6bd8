"""What a plan does with the rows of its source: which columns it uses, and whether a row of its result is one event's.

Spark does not tell sources that are written in Python which columns are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

IsSource = Callable[[Any], bool]
# Nodes of an optimized plan that make every row of one row of their input.
_ROW_BY_ROW: Final = frozenset(
    [
        *("Project", "Filter", "Generate", "Expand", "Sort", "Sample", "Union", "Window", "GlobalLimit", "LocalLimit"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint", "CollectMetrics"),
        *("BatchEvalPython", "ArrowEvalPython", "BatchEvalPythonUDTF", "ArrowEvalPythonUDTF"),
    ]
)


def used_columns(plan: Any, is_source: IsSource) -> set[str]:
    """Return the columns of the source that an optimized plan uses, or has in its result."""
    asked = {key for key, _ in (*_attributes(plan.output()), *_references(plan, is_source))}
    return {name for key, name in _outputs(plan, is_source) if key in asked}


def keeps_events_apart(plan: Any, is_source: IsSource) -> bool:
    """Whether every row of an optimized plan's result is made of one row of the source.

    Not if rows are aggregated or joined with each other, nor where Python code sees many of them at once.
    """
    if is_source(plan):
        return True
    below = [one for one in _children(plan) if _reads(one, is_source)]
    if below and kind(plan) not in _ROW_BY_ROW and not (kind(plan) == "Join" and len(below) == 1):
        return False
    return all(keeps_events_apart(one, is_source) for one in below)


def _reads(plan: Any, is_source: IsSource) -> bool:
    return any(map(is_source, nodes(plan)))


def nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan and everything below it."""
    yield plan
    for one in _children(plan):
        yield from nodes(one)


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(place) for place in range(children.size())]


def kind(plan: Any) -> str:
    """Return the name of a node's class."""
    return str(plan.getClass().getSimpleName())


def _outputs(plan: Any, is_source: IsSource) -> Iterator[tuple[int, str]]:
    if is_source(plan):
        yield from _attributes(plan.output())
        return
    for one in _children(plan):
        yield from _outputs(one, is_source)


def _references(plan: Any, is_source: IsSource) -> Iterator[tuple[int, str]]:
    if is_source(plan):
        return
    yield from _attributes(plan.references().toSeq())
    for one in _children(plan):
        yield from _references(one, is_source)


def _attributes(some: Any) -> Iterator[tuple[int, str]]:
    for place in range(some.size()):
        one = some.apply(place)
        yield int(one.exprId().id()), str(one.name())
