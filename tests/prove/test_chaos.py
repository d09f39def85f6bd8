"""Engines are killed, stopped and frozen at random, while their handlers die, hang and fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos import run_chaos
from tests.support.logs import MakeLog


@pytest.mark.shows("K16", "K17", "K18", "K35", "K42", "K45", "K46")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1_000, 1_030))
def test_killed_stopped_and_frozen_engines_lose_nothing_at_length(
    make_log: MakeLog, log_url: str, tmp_path: Path, seed: int
) -> None:
    run_chaos(make_log(), log_url, tmp_path, seed, events=150, seconds=12)
