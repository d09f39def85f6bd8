"""Start traces in a process that handles events, if its environment asks for them.

The environment is the one switch because every process has it: those of handlers, of a pool, and Spark's workers. What
traces are is known in a higher layer, which is imported only if they are on.
"""

from __future__ import annotations

import importlib
import os
from typing import Final

VARIABLE: Final = "PENSTOCK_TRACES"
MODULE: Final = "penstock.telemetry.traces"  # has `start()` and `flush(seconds)`
_OFF: Final = ("", "0", "false", "no", "off")
_FLUSH_SECONDS: Final = 2.0


def wanted() -> bool:
    """Return whether the environment asks for traces."""
    return os.environ.get(VARIABLE, "").strip().lower() not in _OFF


def start_if_wanted() -> None:
    """Start traces, after the user's code was imported: it may have set up OpenTelemetry itself."""
    if wanted():
        importlib.import_module(MODULE).start()


def flush() -> None:
    """Send what was not sent yet; before a process ends that may be killed at any moment."""
    if wanted():
        importlib.import_module(MODULE).flush(_FLUSH_SECONDS)


def environment() -> dict[str, str]:
    """Return what a process elsewhere needs in its environment to trace as this one does."""
    if not wanted():
        return {}
    return {name: value for name, value in os.environ.items() if name == VARIABLE or name.startswith("OTEL_")}
