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


@router.get("/readyz", **spec(None, {"status": "ready"}, "store_unavailable", reads=True))
def readyz(log: TheLog) -> Answer:
    """Answer 503 if the database cannot be reached."""
    try:
        log.end()
    except PenstockError as error:  # without its words, which may name the database: everybody may ask
        raise StoreUnavailable from error
    return Answer({"status": "ready"})
