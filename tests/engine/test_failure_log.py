"""Engines log failures: a line per event, but at most three lines a minute for one kind."""

from __future__ import annotations

import logging

import pytest

from penstock.core import fingerprint
from penstock.core.batch import Events
from penstock.core.columns import RowColumns
from penstock.core.limits import FAILURE_LINES, FAILURE_LINES_SECONDS
from penstock.core.observe import EventsFailed
from penstock.engine.failure_log import FailureLog


def some(count: int) -> Events:
    rows = [(n, bytes(16), "t", b"", "x", None, None, None, None, None, 0) for n in range(1, count + 1)]
    return Events(RowColumns(rows), "orders", None)


def test_one_kind_of_error_is_logged_a_few_times_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    told = FailureLog(clock=lambda: now)
    failures = {place: fingerprint.of_text("KeyError", f"no {place}", "KeyError") for place in range(99)}
    failures[99] = fingerprint.of_text("Permanent", "never")
    observed = EventsFailed("orders/fraud", some(100), failures)
    with caplog.at_level(logging.WARNING, "penstock"):
        told(observed)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == FAILURE_LINES + 1
        assert lines[0].startswith("orders/fraud: orders@1 ") and "KeyError: no 0" in lines[0]
        assert "never" in lines[-1], "another kind must have its own lines"
        now += FAILURE_LINES_SECONDS
        caplog.clear()
        told(observed)
        assert f"and {99 - FAILURE_LINES} more like it" in caplog.records[0].getMessage()
