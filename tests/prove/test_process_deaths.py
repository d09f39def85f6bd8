"""Deaths, time-outs and failures in any order: hundreds of random groups with real child processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.done_table import create_done_table
from tests.support.logs import MakeLog
from tests.support.scripted_events import check_random_deaths


@pytest.mark.shows("K45", "K46")
@pytest.mark.parametrize("seed", range(100, 300))
def test_random_deaths_and_failures_leave_effects_once_and_in_order_at_length(
    make_log: MakeLog, log_url: str, notes: Path, seed: int
) -> None:
    create_done_table(log_url)
    check_random_deaths(make_log(), log_url, notes, seed, events=40)
