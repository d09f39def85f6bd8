"""Runs: who is at work. A worker that only speaks HTTP begins one, and hears with its heartbeats what it should do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.core.access import READ
from penstock.core.event import check_text
from penstock.http.answers import Answer
from penstock.http.bodies import Body, StrictRoute, Whole
from penstock.http.given import CanRead, CanWork, TheLog, require_everywhere
from penstock.http.shapes import an_object, many
from penstock.http.spec import spec
from penstock.log.checks import required_key
from penstock.log.runs import NewRun

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=StrictRoute)
_ENGINE: Final = "http"
_PID = Annotated[Whole, Field(ge=0, lt=2**31)]
_RUN = {"id": 7, "name": "w-1", "engine": "http", "groups": ["email:send"], "state": "running", "wanted": "run"}
RunId = Annotated[int, Path(ge=0, lt=2**63, description="The number of the run.")]


class BeginRun(Body):
    """Who works, where, and on what: what `penstock runs` shows."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "w-1", "host": "mail-1", "pid": 4711, "groups": ["email:send"]}]}
    )

    name: str
    host: str | None = Field(None, description="Else the address that the request came from.")
    pid: _PID = 0
    version: str = ""
    groups: list[str] = Field([], max_length=1_000, description="Groups or types of jobs.")


class EndRun(Body):
    """How it ended."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"outcome": "stopped"}]})

    outcome: str = "stopped"


@router.get("", **spec("read", {"runs": [_RUN]}, shape=an_object(runs=many("Run")), reads=True))
def runs(log: TheLog, access: CanRead, all: bool = False) -> Answer:
    """List the runs of engines; with `all` those that have ended, too. A token for some streams does not see them."""
    require_everywhere(access, READ)
    return Answer({"runs": [asdict(one) for one in log.runs(all=all)]})


@router.post("", **spec("work", {"id": 7}, status=201))
def begin(request: Request, log: TheLog, access: CanWork, body: BeginRun) -> Answer:
    """Begin a run. Send its id with `POST /v1/heartbeats`: the answer says `run`, `quiet` or `stop`."""
    host = body.host or ("" if request.client is None else request.client.host)
    groups = [required_key(one, "groups") for one in body.groups]
    version = check_text(body.version, "version") or ""
    name = required_key(body.name, "name")
    new = NewRun(name, access.name, _ENGINE, version, required_key(host or "unknown", "host"), body.pid, groups)
    return Answer({"id": log.start_run(new)}, status_code=201)


@router.post("/{run}/end", **spec("work", None, "unknown_run", status=204))
def end(log: TheLog, access: CanWork, run: RunId, body: EndRun | None = None) -> Response:
    """End a run that this token has begun."""
    outcome = required_key((body or EndRun()).outcome, "outcome")
    log.beat_run(run, token=access.name)
    log.end_run(run, outcome)
    return Response(status_code=204)
