"""Kill the driver of a pipeline at a named step of its commit, and check that every row arrives once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import penstock
from tests.support.children import killed_driver
from tests.support.children.killed_driver import EVENTS, declared
from tests.support.log_steps import append_orders_of_two_types, count_by_state
from tests.support.raw_sql import raw
from tests.support.spark_pipeline import run_pipeline_until_drained, staged_leftovers, stored_numbers
from tests.support.viewfs import mount_viewfs

ROOT = Path(__file__).parents[2]


def prepare_pipeline(log: penstock.Log, url: str, kind: str) -> None:
    """Append the events, and create the table that the sink needs."""
    append_orders_of_two_types(log, EVENTS)
    if kind in ("table", "upsert"):
        with raw(url) as sql:
            sql("create table numbers (n bigint" + (" primary key, extra text)" if kind == "upsert" else ")"))


def run_until_killed(url: str, kind: str, place: str, when: str, block: str) -> None:
    """Run the pipeline in a process that dies at this step."""
    command = [sys.executable, "-m", killed_driver.__name__, url, kind, place, when, block]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == -signal.SIGKILL, f"it was not killed: {ended.stdout}{ended.stderr}"


def delivered_numbers(log: penstock.Log, url: str, kind: str, place: str, spark: Any) -> list[int]:
    """Every number in the sink, sorted."""
    if kind in ("table", "upsert"):
        return stored_numbers(url)
    if kind == "stream":
        return sorted(one.json()["n"] for one in log.read("copies", limit=10 * EVENTS))
    return sorted(row["n"] for row in spark.read.parquet(place).collect())


def check_every_row_arrives_once(
    log: penstock.Log, url: str, spark: Any, place: str, kind: str, when: str, block: str
) -> None:
    """Kill a driver at this step; another one finishes the work and leaves nothing behind."""
    prepare_pipeline(log, url, kind)
    mount_viewfs(spark, place)
    run_until_killed(url, kind, place, when, block)
    run_pipeline_until_drained(log, spark, declared(kind, place))
    assert count_by_state(log) == {"published": EVENTS}
    assert delivered_numbers(log, url, kind, place, spark) == list(range(EVENTS))
    run_pipeline_until_drained(log, spark, declared(kind, place))  # cleans up after the first driver
    assert staged_leftovers(url) == [0, 0, 0, 0]
    assert not list(Path(place).glob("_penstock/*"))
