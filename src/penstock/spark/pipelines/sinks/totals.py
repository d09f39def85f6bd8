"""Warn of totals that an upsert overwrites batch by batch, and of totals that fail."""

from __future__ import annotations

import logging
from typing import Any

from penstock.declare.pipeline import Pipeline
from penstock.sinks import Table
from penstock.spark.pipelines.failures import ERROR
from penstock.spark.plans import kind, nodes

logger = logging.getLogger("penstock")


def warn_of_lost_totals(pipeline: Pipeline, result: Any) -> None:
    """Warn if the function aggregates into an upsert (a batch knows only its own part of a total), or fails totals."""
    sink = pipeline.sink
    if isinstance(sink, Table) and sink.mode == "upsert" and sink.version is None and aggregates(result):
        logger.warning(
            '%s aggregates, and its upsert into %r replaces what earlier batches wrote: use mode="merge" with '
            "add=[…] to add totals up, or upsert with version=… if the last batch is right",
            pipeline.name,
            sink.name,
        )
    if ERROR in result.columns and aggregates(result):
        logger.warning(
            "%s aggregates and has a column `_error`: a total that fails is dropped, and only the event that its "
            "`offset` names fails with it. Set `_error` on the rows of single events, before they are added up",
            pipeline.name,
        )


def aggregates(rows: Any) -> bool:
    """Whether a DataFrame aggregates anywhere in its plan; rows that are only made distinct do not count."""
    try:
        return any(kind(plan) == "Aggregate" for plan in nodes(rows._jdf.queryExecution().analyzed()))
    except Exception as error:  # another version of Spark has other plans, and this is only a warning
        logger.debug("the plan cannot be read: %s", error)
    return False
