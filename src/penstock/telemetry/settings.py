"""What a run of an app tells other systems about itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from penstock.core.observe import MetricsServed, everyone
from penstock.engine.tracing import wanted
from penstock.errors import InvalidInput

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Whether a run is traced, and where Prometheus finds its counts.

    >>> Telemetry(traces=True, metrics_port=9464)
    Telemetry(traces=True, metrics_port=9464, metrics_host='127.0.0.1')
    """

    traces: bool | None = None  # None: if $PENSTOCK_TRACES says so
    metrics_port: int | None = None  # None: nowhere; 0: any port that is free
    metrics_host: str = LOOPBACK  # whoever can reach it can read it

    def __post_init__(self) -> None:
        port = self.metrics_port
        if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535):
            raise InvalidInput(f"metrics_port is a number from 0 to 65,535, not {port!r}.")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Do so for the duration of the block."""
        with ExitStack() as stack:
            if self.metrics_port is not None:
                from penstock.telemetry.metrics import Metrics, serving

                metrics = stack.enter_context(Metrics().counting())
                url = stack.enter_context(serving(metrics, self.metrics_host, self.metrics_port))
                everyone.emit(MetricsServed(url))
            if wanted() if self.traces is None else self.traces:
                from penstock.telemetry.traces import tracing

                stack.enter_context(tracing(True))
            yield
