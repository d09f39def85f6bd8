"""Metrics for Prometheus: the truth of the whole log, and the counts of this process."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from penstock.core.access import READ, Access
from penstock.http.given import CanRead
from penstock.http.spec import spec
from penstock.log.log import Log
from penstock.telemetry.families import MEDIA_TYPE, OTHER, Family, exposition
from penstock.telemetry.log_metrics import BUILD, UP, LogMetrics
from penstock.telemetry.metrics import Metrics

router = APIRouter(tags=["health"])
TEXT: Final = "text/plain"
_EXAMPLE: Final = 'penstock_group_lag{group="fraud",stream="orders"} 4.0\n'


class ServiceMetrics:
    """Everything that the service tells Prometheus."""

    def __init__(self, log: Log) -> None:
        self.process = Metrics()
        self.log = LogMetrics(log)
        self._shown: tuple[list[Family], bytes] | None = None  # everything about the log, and how it was written

    def text(self, access: Access) -> bytes:
        """Return what a token may see: of some streams only, or everything, which is written once while it is good."""
        found, counted = self.log.families(), self.process.families()
        if not access.may_everywhere(READ):
            return exposition([_seen_by(access, one) for one in (*found, *counted)])
        shown = self._shown
        if shown is None or shown[0] is not found:
            shown = self._shown = (found, exposition(found))
        return shown[1] + exposition(counted)


def _seen_by(access: Access, family: Family) -> Family:
    def may_see(stream: str) -> bool:
        return stream not in ("", OTHER) and access.may(READ, stream)

    return family if family.about in (BUILD, UP) else family.seen_by(may_see)


async def _metrics(request: Request) -> ServiceMetrics:
    found: ServiceMetrics = request.app.state.metrics
    return found


@router.get("/metrics", **spec("read", _EXAMPLE, "missing_dependency", media_type=TEXT, reads=True))
def metrics(found: Annotated[ServiceMetrics, Depends(_metrics)], access: CanRead) -> Response:
    """Return the metrics of the log and of this process, in the text format of Prometheus.

    Those of the log are computed every few seconds at most, however many ask. A token for some streams sees those.
    """
    return Response(found.text(access), media_type=MEDIA_TYPE)
