"""A few seconds of chaos; `tests/prove/test_chaos.py` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos import run_chaos
from tests.support.logs import MakeLog


@pytest.mark.shows("K16", "K18", "K42", "K45", "K46")
@pytest.mark.timeout(300)
def test_killed_stopped_and_frozen_engines_lose_nothing(make_log: MakeLog, log_url: str, tmp_path: Path) -> None:
    run_chaos(make_log(), log_url, tmp_path, seed=7, events=40, seconds=4)
