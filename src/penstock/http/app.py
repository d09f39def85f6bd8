"""The service: all routers behind one gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import Final

from fastapi import FastAPI

from penstock.http import (
    dead_letters,
    events,
    groups,
    health,
    inspection,
    job_work,
    jobs,
    leases,
    metrics,
    operations,
    operators,
    problems,
    retention,
    runs,
    schedules,
    standing,
    system,
)
from penstock.http.auth import Auth
from penstock.http.front import Front, first_parts
from penstock.http.gate import BODY_BYTES, Gate
from penstock.http.polls import Polls
from penstock.http.rate import RateLimit
from penstock.http.sessions import Door
from penstock.http.spec import openapi
from penstock.log.log import Log
from penstock.web import Live, asgi

REQUESTS_PER_SECOND: Final = 1_000.0
_ROUTERS: Final = (
    health.router,
    metrics.router,
    events.router,
    groups.router,
    operators.router,
    dead_letters.router,
    operations.router,
    leases.router,
    job_work.router,  # before /v1/jobs/{job_id}
    jobs.router,
    schedules.router,
    inspection.router,
    standing.router,
    system.router,
    retention.router,
    runs.router,
)


def service(
    log: Log, auth: Auth, *, requests_per_second: float = REQUESTS_PER_SECOND, body_bytes: int = BODY_BYTES
) -> FastAPI:
    """Make the service over an open log, which it does not close. The rate is that of each token."""
    polls, live, door = Polls(log), Live(log), Door(auth)
    measured = metrics.ServiceMetrics(log)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        with measured.process.counting():
            yield
            live.stop()
            await polls.close()

    app = FastAPI(title="Penstock", version=_version(), docs_url=None, redoc_url=None, lifespan=life)
    app.state.log, app.state.polls, app.state.live, app.state.metrics = log, polls, live, measured
    for router in _ROUTERS:
        app.include_router(router)
    problems.install(app)
    app.add_middleware(Gate, auth=auth, rate=RateLimit(requests_per_second), body_bytes=body_bytes)
    pages = asgi(log, door.authorize, sign_in=door.sessions, live=live, api_url="")
    own = first_parts(chain(app.routes, *(router.routes for router in _ROUTERS)))  # an app may not list its routers'
    app.add_middleware(Front, pages=pages, own=own)
    app.openapi = partial(openapi, app)  # type: ignore[method-assign]  # this is how FastAPI takes another one
    return app


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:  # from the source, without an installation
        return "0"
