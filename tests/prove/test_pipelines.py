"""A pipeline's driver is killed at every named step of the commit, for every sink, on both stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.support.children.killed_driver import STEPS
from tests.support.driver_kill import check_every_row_arrives_once


@pytest.mark.shows("S05")
@pytest.mark.parametrize(
    ("kind", "when", "block"), [(kind, when, block) for kind, steps in STEPS.items() for when, block in steps]
)
def test_a_driver_killed_at_any_step_leaves_every_row_once(
    log: penstock.Log, log_url: str, spark: Any, tmp_path: Path, kind: str, when: str, block: str
) -> None:
    check_every_row_arrives_once(log, log_url, spark, str(tmp_path / "lake"), kind, when, block)
