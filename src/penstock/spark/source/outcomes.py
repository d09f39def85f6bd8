"""Outcomes of single events inside `foreachBatch`: failed ones are retried or die, and the query goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import InvalidInput, InvalidPipeline
from penstock.log.queries import fail_events
from penstock.spark.logs import log_at
from penstock.spark.pipelines.failures import ERROR, OFFSET, check_result
from penstock.spark.pipelines.sinks.foreach import errors_of, without_events
from penstock.spark.source.micro_batch import SourceClaim, claims_of


def outcomes(rows: Any, batch_id: int, errors: Mapping[int, Any] | None = None) -> Any:
    """Record which events of the running micro-batch failed; return the rows of all others.

    Call it inside of `foreachBatch`. Without `errors`, an event failed if one of its rows has an `_error` that is not
    null: the rows are evaluated once, and come back without that column. With `errors`, they are given by the offset of
    their event: a text or an exception, of which `Permanent` and `RetryLater` count. Nothing happens before Spark has
    committed the batch: then the claim is settled, and each failed event is retried by the policy of its group, or
    DEAD. When the batch runs again, what is said then counts.
    """
    claims = claims_of(rows, batch_id)
    if errors is None:
        if ERROR not in rows.columns:
            raise InvalidInput(f"The rows have no column `{ERROR}`, and no errors were given.")
        try:
            check_result(rows, "foreachBatch")
        except InvalidPipeline as error:
            raise InvalidInput(error.message) from error
        kept = rows.localCheckpoint(eager=True)
        errors = errors_of(kept)
        good = without_events(kept.where(f"{ERROR} is null").drop(ERROR), errors)
    else:
        good = without_events(rows, errors) if OFFSET in rows.columns else rows
    _record(claims, errors)
    return good


def _record(claims: list[SourceClaim], errors: Mapping[int, Any]) -> None:
    """Store the errors with the claims, in the log of each; a batch of several logs must tell errors apart itself."""
    urls = {claim.url for claim in claims}
    if len(urls) > 1:
        raise InvalidInput("This query reads several logs, and an offset does not say which one is meant.")
    if errors and not claims:
        raise InvalidInput("This batch has read no events of a group, so none of them can have failed.")
    for url in urls:
        fail_events(log_at(url).store, [(claim.reader, claim.claim) for claim in claims], errors)
