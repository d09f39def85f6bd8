"""Events that a pipeline's function failed: those with a row whose `_error` is not null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.core import codec
from penstock.core.lease import Failure, LeaseRow
from penstock.errors import InvalidPipeline

ERROR: Final = "_error"
OFFSET: Final = "offset"
_NO_REASON: Final = "the function gave an empty `_error`"
TEXT_LENGTH: Final = 1_000  # characters of an error: the driver holds those of a whole batch


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


def failures_of(errors: Mapping[int, str], piece: LeaseRow) -> dict[int, Failure]:
    """Make the failures of a piece's events; `InvalidPipeline` if an event is not in it."""
    unknown = [offset for offset in errors if not _within(offset, piece)]
    if unknown:
        raise InvalidPipeline(f"A row with `_error` has the offset {unknown[0]}, which is not in the batch.")
    return {offset: Failure("error", codec.error_text(error or _NO_REASON)) for offset, error in errors.items()}


def _within(offset: int | None, piece: LeaseRow) -> bool:
    if offset is None:
        return False
    if piece.offsets is not None:
        return offset in piece.offsets
    assert piece.low is not None and piece.high is not None
    return piece.low < offset <= piece.high
