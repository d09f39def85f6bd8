"""The events of a lease as a DataFrame; tasks read them, nothing passes through the driver.

Only the columns that the function uses are read. Spark does not pass them to Python readers, so we take them from its
plan. If a column that was left out is used after all, evaluating it raises, and from then on all columns are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.core.lease import LeaseRow
from penstock.spark import plans
from penstock.spark.arrow import EVENTS_DDL, read_claimed
from penstock.spark.logs import log_at
from penstock.spark.pipelines.read_once import skips

CLAIMED_DDL = f"{EVENTS_DDL}, attempts int"
_TYPES = dict(one.strip().split(" ", 1) for one in CLAIMED_DDL.replace("string,string", "string;string").split(","))
COLUMNS = tuple(_TYPES)
UNREAD = "penstock has not read the column "
logger = logging.getLogger("penstock")


def frame(spark: Any, safe_url: str, pieces: Sequence[LeaseRow], columns: Sequence[str] = COLUMNS) -> Any:
    """Make a DataFrame with one partition per piece of a lease.

    The content of a lease never changes, so a task that Spark runs again reads the same events, or none: see
    `read_once`.
    """
    listed = list(pieces)
    wanted = [name for name in COLUMNS if name in columns]

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        skipping = skips()
        for batch in batches:
            for place in () if skipping else batch.column(0).to_pylist():
                yield from read_claimed(log_at(safe_url), listed[place], wanted)

    found = spark.range(0, len(listed), 1, len(listed)).mapInArrow(read, _ddl(wanted))
    return found if len(wanted) == len(COLUMNS) else found.select(*(_column(name, wanted) for name in COLUMNS))


def empty_frame(spark: Any) -> Any:
    """Make a DataFrame with the same columns and no rows, to test a function with."""
    return spark.createDataFrame([], CLAIMED_DDL)


class Use(NamedTuple):
    """What a function does with its events, according to Spark's plan."""

    columns: Sequence[str] = COLUMNS  # that it uses
    apart: bool = False  # every row of its result is made of one event


def use_of(spark: Any, function: Callable[[Any], Any]) -> Use:
    """Look at the plan of a function; one that cannot be read says nothing."""
    probe = spark.range(1).mapInArrow(lambda batches: batches, CLAIMED_DDL)
    try:
        plan = function(probe)._jdf.queryExecution().optimizedPlan()
        used = plans.used_columns(plan, _is_ours)
        apart = plans.keeps_events_apart(plan, _is_ours)
    except Exception as error:  # the function runs an action, or the Spark version differs
        logger.debug("reading all columns: %s", error)
        return Use()
    return Use([name for name in COLUMNS if name in used or name == "offset"], apart)


def _ddl(names: Sequence[str]) -> str:
    return ", ".join(f"{name} {_TYPES[name].replace(';', ',')}" for name in names)


def _column(name: str, wanted: Sequence[str]) -> Any:
    from pyspark.sql import functions as f

    if name in wanted:
        return f.col(name)
    return f.raise_error(f.lit(f"{UNREAD}{name}")).cast(_TYPES[name].replace(";", ",")).alias(name)


def _is_ours(plan: Any) -> bool:
    """Whether this is the node that reads events: a Python function over a range."""
    children = plan.children()
    return plans.kind(plan) == "MapInArrow" and children.size() == 1 and plans.kind(children.apply(0)) == "Range"
