"""PostgreSQL's query plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def plan_nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan of EXPLAIN (format json) and everything below it."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from plan_nodes(child)


def read_rows(plan: list[dict[str, Any]], table: str) -> float:
    """How many rows of a table the plan read, those that a filter removed included."""
    return sum(
        node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0) * node["Actual Loops"]
        for node in plan
        if node.get("Relation Name") == table
    )


def scans(plan: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Every way in which a table is read: (node type, table)."""
    return {(node["Node Type"], node["Relation Name"]) for node in plan if "Relation Name" in node}
