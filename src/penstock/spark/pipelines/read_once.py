"""Read every piece of a batch in one attempt only, so that one Spark job tells all pieces that fail.

Spark runs a failed task again. In a Spark job with the tag `ONCE` the second attempt reads no events: it succeeds
without rows and says that it is a second attempt, while other tasks go on. So every event is read, judged and staged
by one attempt, whatever a function answers the next time, and one Spark job tells all pieces that fail.

That holds only if the task that reads a piece also stages its rows: if the plan is a straight line, without a shuffle,
a union or a coalesce.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

ONCE: Final = "penstock-read-once"
# Nodes of an executed plan that neither move rows between partitions nor read something else.
_IN_PLACE: Final = frozenset(
    [
        *("ProjectExec", "FilterExec", "GenerateExec", "ExpandExec", "SortExec", "SampleExec", "InputAdapter"),
        *("WholeStageCodegenExec", "ColumnarToRowExec", "RowToColumnarExec", "ArrowEvalPythonExec"),
        *("BatchEvalPythonExec", "BatchEvalPythonUDTFExec", "ArrowEvalPythonUDTFExec", "MapInArrowExec"),
        *("MapInPandasExec", "DeserializeToObjectExec", "SerializeFromObjectExec", "MapPartitionsExec"),
    ]
)
_WRAPPERS: Final = frozenset({"InputAdapter", "WholeStageCodegenExec", "ColumnarToRowExec", "RowToColumnarExec"})


def is_once() -> bool:
    """Whether the job of this task reads every piece once."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and ONCE in (context.getLocalProperty("spark.job.tags") or "")


def skips() -> bool:
    """Whether this task is to read nothing: another attempt has read its piece."""
    return is_once() and attempt() > 0


def attempt() -> int:
    """The number of this attempt of a task; the first is 0."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "only tasks have attempts"
    return context.attemptNumber()


@contextmanager
def reading_once(frame: Any) -> Iterator[bool]:
    """Tag this thread's Spark jobs if the plan of the frame allows it; yields whether it does."""
    context = frame.sparkSession.sparkContext
    if not is_straight(frame):
        yield False
        return
    context.addJobTag(ONCE)
    try:
        yield True
    finally:
        context.removeJobTag(ONCE)


def is_straight(frame: Any) -> bool:
    """Whether every partition of a frame is made of the piece with the same number, and of nothing else."""
    plan = frame._jdf.queryExecution().executedPlan()
    above = ""
    while (kind := str(plan.getClass().getSimpleName())) != "RangeExec":
        if kind not in _IN_PLACE or plan.children().size() != 1:
            return False
        above = above if kind in _WRAPPERS else kind
        plan = plan.children().apply(0)
    return above == "MapInArrowExec"  # our reader: see `frames`
