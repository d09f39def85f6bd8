"""Backoff with handlers on a virtual clock; the due time is stored and survives every process."""

from __future__ import annotations

import pytest

import penstock
from penstock.testing import Drained, Harness, VirtualClock

RETRY = penstock.Retry(max_attempts=4, base_seconds=10, factor=3, cap_seconds=50, jitter=0)


def shop(seen: list[int]) -> penstock.App:
    app = penstock.App("sqlite:///unused.db")

    @app.subscribe("orders", group="g", retry=RETRY)
    def fail(event: penstock.Event) -> None:
        seen.append(event.attempts)
        raise ValueError("no")

    return app


@pytest.mark.shows("K12", "K13")
def test_a_failing_handler_is_called_when_its_backoff_is_over(log_url: str) -> None:
    """10 s, 30 s, then the cap of 50 s; the fourth failure is the last."""
    seen: list[int] = []
    clock = VirtualClock()
    with Harness(shop(seen), url=log_url, clock=clock) as harness:
        harness.append("orders", {}, type="t")
        assert harness.drain() == Drained(failed=1)
        for delay, expected in ((10, Drained(failed=1)), (30, Drained(failed=1)), (50, Drained(dead=1))):
            clock.advance(delay - 0.000001)
            assert harness.drain() == Drained()
            clock.advance(0.000001)
            assert harness.drain() == expected
        clock.advance(1_000_000)
        assert harness.drain() == Drained(), "a dead letter was claimed"
    assert seen == [1, 2, 3, 4]


@pytest.mark.shows("K12")
def test_the_due_time_survives_the_process(log_url: str) -> None:
    seen: list[int] = []
    clock = VirtualClock()
    with Harness(shop(seen), url=log_url, clock=clock) as harness:
        harness.append("orders", {}, type="t")
        harness.drain()
    clock.advance(9)
    with Harness(shop(seen), url=log_url, clock=clock) as harness:
        assert harness.drain() == Drained()
        clock.advance(1)
        assert harness.drain() == Drained(failed=1)
    assert seen == [1, 2]
