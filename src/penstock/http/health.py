"""Whether the service lives, and whether its database can be reached. Nobody needs a token to ask."""

from __future__ import annotations

from fastapi import APIRouter

from penstock.errors import PenstockError, StoreUnavailable
from penstock.http.answers import Answer
from penstock.http.given import TheLog
from penstock.http.spec import spec

router = APIRouter(tags=["health"])


@router.get("/healthz", **spec(None, {"status": "ok"}, reads=True))
async def healthz() -> Answer:
    """Answer as long as the process lives."""
    return Answer({"status": "ok"})


_DOWN = {"stream": "orders", "group": "to-kafka", "since": "2026-01-01T12:00:00.000000Z"}


@router.get("/readyz", **spec(None, {"status": "degraded", "targets_down": [_DOWN]}, "store_unavailable", reads=True))
def readyz(log: TheLog) -> Answer:
    """Answer 503 if the database cannot be reached; `degraded`, with the groups, if targets of publishers are down."""
    try:
        down = log.circuits()
    except PenstockError as error:  # without its words, which may name the database: everybody may ask
        raise StoreUnavailable from error
    found = [{"stream": one.stream, "group": one.group, "since": one.since} for one in down]
    return Answer({"status": "degraded" if down else "ready", "targets_down": found})
