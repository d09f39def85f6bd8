"""How many tasks a Spark application can run at once, as its executors come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.spark.session import is_local


def count_slots(context: Any) -> int:
    """Return the number of tasks that fit on the live executors now; 0 if there are none yet."""
    if is_local(context.master):
        return max(1, int(context.defaultParallelism))
    per_task = max(1, int(context.getConf().get("spark.task.cpus", "1")))
    return sum(int(one.totalCores()) // per_task for one in _executors(context))


def executor_ids(context: Any) -> set[str]:
    """Return the ids of the live executors."""
    return {str(one.id()) for one in _executors(context)}


def _executors(context: Any) -> Iterator[Any]:
    found = context._jsc.sc().statusStore().executorList(True)
    live = (found.apply(place) for place in range(found.size()))
    return (one for one in live if one.id() != "driver")


def grows(context: Any) -> bool:
    """Whether Spark starts executors when tasks wait for a slot."""
    return str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
