"""Events that a pipeline's function failed: those with a row whose `_error` is not null."""

from __future__ import annotations

from typing import Any, Final

from penstock.core import codec
from penstock.core.lease import Failure, LeaseRow
from penstock.errors import InvalidPipeline

ERROR: Final = "_error"
OFFSET: Final = "offset"
_TEXT: Final = 1_000  # characters of an error: the driver holds those of a whole batch


def check_result(result: Any, function: str) -> Any:
    """Return the schema of a function's result; `InvalidPipeline` if it is not a DataFrame we can use."""
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        raise InvalidPipeline(f"{function} returned {type(result).__name__}, not a DataFrame.")
    schema = result.schema
    if len({*schema.names}) < len(schema.names):
        raise InvalidPipeline(f"Two columns of the result have the same name: {', '.join(schema.names)}.")
    if ERROR in schema.names:
        if OFFSET not in schema.names or schema[OFFSET].dataType.typeName() not in ("long", "bigint"):
            raise InvalidPipeline("The result has a column `_error`, but no `offset` (bigint) to say whose it is.")
        if schema[ERROR].dataType.typeName() not in ("string", "void"):
            raise InvalidPipeline("The column `_error` must be text.")
    return schema


def failures(result: Any, piece: LeaseRow) -> dict[int, Failure]:
    """Collect the failed events of a piece of a lease, each with one of its errors."""
    from pyspark.sql import functions as f

    text = f.substring(f.col(ERROR).cast("string"), 1, _TEXT)
    failed = result.where(f.col(ERROR).isNotNull()).groupBy(OFFSET).agg(f.min(text).alias(ERROR))
    found = {row[OFFSET]: row[ERROR] for row in failed.collect()}
    unknown = [offset for offset in found if not _within(offset, piece)]
    if unknown:
        raise InvalidPipeline(f"A row with `_error` has the offset {unknown[0]}, which is not in the batch.")
    return {offset: Failure("error", codec.error_text(error)) for offset, error in found.items()}


def succeeded(spark: Any, result: Any, failed: dict[int, Failure]) -> Any:
    """Return the rows of all other events; of a failed event no row is kept."""
    rows = result.where(f"{ERROR} is null").drop(ERROR)
    if not failed:
        return rows
    offsets = spark.createDataFrame([(offset,) for offset in failed], "failed bigint")
    return rows.join(offsets, rows[OFFSET] == offsets["failed"], "left_anti")


def _within(offset: int | None, piece: LeaseRow) -> bool:
    if offset is None:
        return False
    if piece.offsets is not None:
        return offset in piece.offsets
    assert piece.low is not None and piece.high is not None
    return piece.low < offset <= piece.high
