"""Which claims the running micro-batch of a streaming query reads, as seen inside of `foreachBatch`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.errors import InvalidInput
from penstock.spark.session import check_classic


class SourceClaim(NamedTuple):
    """A claim that a micro-batch reads, and where it comes from."""

    url: str
    stream: str
    group: str
    reader: str
    claim: int


def query_id(frame: Any, batch_id: int) -> str:
    """Return the id of the query whose `foreachBatch` function runs now; `InvalidInput` outside of one."""
    context = check_classic(frame.sparkSession).sparkContext
    query, batch = (context.getLocalProperty(f"{name}Id") for name in ("sql.streaming.query", "streaming.sql.batch"))
    if query is None or batch != str(batch_id):
        raise InvalidInput(f"Batch {batch_id} is not the batch that runs now: call this inside of foreachBatch.")
    return str(query)


def claims_of(frame: Any, batch_id: int) -> list[SourceClaim]:
    """Return the claims that the running micro-batch reads: one of each group that is a source, none without data."""
    session = frame.sparkSession
    found = session._jsparkSession.sharedState().activeStreamingQueries()
    running = found.get(session._jvm.java.util.UUID.fromString(query_id(frame, batch_id)))
    if running is None:
        raise InvalidInput("The query of this batch has ended.")
    ends = running.availableOffsets()
    claims: dict[tuple[str, int], SourceClaim] = {}  # a source that is read twice, in a self-join, has one claim
    for leaf in _leaves(running.logicalPlan()):
        if not str(leaf.getClass().getSimpleName()).startswith("StreamingDataSourceV2"):
            continue
        offset = ends.get(leaf.stream())
        claim = _claim(leaf.relation().options(), str(offset.get().json())) if offset.isDefined() else None
        if claim is not None:
            claims[claim.reader, claim.claim] = claim
    return list(claims.values())


def _claim(options: Any, offset: str) -> SourceClaim | None:
    end = json.loads(offset)
    if not isinstance(end, dict) or {*end} != {"claim", "reader"} or not end["claim"]:
        return None  # another source, or nothing was claimed yet
    url = options.get("url") or os.environ.get("PENSTOCK_URL", "")
    return SourceClaim(url, options.get("stream"), options.get("group"), end["reader"], end["claim"])


def _leaves(plan: Any) -> Iterator[Any]:
    children = plan.children()
    if children.size() == 0:
        yield plan
    for place in range(children.size()):
        yield from _leaves(children.apply(place))
