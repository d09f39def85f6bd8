"""Run handlers on the local engine."""

from __future__ import annotations

import penstock
from penstock.declare.subscription import Subscription
from penstock.engine.local.engine import LocalEngine

PATIENCE_SECONDS = 180


def run_local_until_drained(log: penstock.Log, *subscriptions: Subscription) -> LocalEngine:
    """Run an engine until no work is left; return it for its counters."""
    engine = LocalEngine(log, subscriptions, until_drained=True)
    engine.start()
    try:
        assert engine.wait(PATIENCE_SECONDS), f"still working: {engine.snapshot()}"
    finally:
        engine.stop()
    return engine
