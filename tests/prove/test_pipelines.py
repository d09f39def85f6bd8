"""Pipelines whose driver is killed at every named step of the commit, or whose executors are lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.support.children import lost_executor
from tests.support.children.killed_driver import STEPS
from tests.support.children.lost_executor import EVENTS
from tests.support.driver_kill import ROOT, check_every_row_arrives_once
from tests.support.log_steps import append_orders_of_two_types
from tests.support.spark_pipeline import create_numbers_table, stored_numbers


@pytest.mark.shows("S05")
@pytest.mark.parametrize(
    ("kind", "when", "block"), [(kind, when, block) for kind, steps in STEPS.items() for when, block in steps]
)
def test_a_driver_killed_at_any_step_leaves_every_row_once(
    log: penstock.Log, log_url: str, spark: Any, tmp_path: Path, kind: str, when: str, block: str
) -> None:
    check_every_row_arrives_once(log, log_url, spark, str(tmp_path / "lake"), kind, when, block)


@pytest.mark.shows("S20")
@pytest.mark.parametrize("plan", ["straight", "shuffle"])
def test_an_executor_that_is_lost_loses_and_doubles_nothing(
    postgres_log: penstock.Log, postgres_log_url: str, tmp_path: Path, plan: str
) -> None:
    append_orders_of_two_types(postgres_log, EVENTS)
    create_numbers_table(postgres_log_url)
    command = [sys.executable, "-m", lost_executor.__name__, postgres_log_url, str(tmp_path), plan]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    dead = {one.json()["n"] for one in postgres_log.deliveries("orders", "g", state="DEAD", limit=EVENTS)}
    assert 0 < len(dead) < EVENTS and stored_numbers(postgres_log_url) == [n for n in range(EVENTS) if n not in dead]
