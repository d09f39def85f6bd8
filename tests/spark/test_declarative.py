"""The example of a Spark Declarative Pipeline, run as users do: from a log into tables, and back into the log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import penstock
from penstock.spark.java import find_java

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative"
BROUGHT = {"README.md", "run.sh", "spark-pipeline.yml", "transformations"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example."""
    place = tmp_path / "project"
    shutil.copytree(EXAMPLE, place, ignore=shutil.ignore_patterns("state", "*.local.yml"))
    return place


def run(project: Path, url: str) -> None:
    done = subprocess.run(
        ["sh", str(project / "run.sh"), "--conf", "spark.ui.enabled=false"],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_URL": url,
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_HOME": str(find_java()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(project / "local"),
        },
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0 and "Run is COMPLETED" in done.stdout + done.stderr, done.stdout + done.stderr


def order(log: penstock.Log, amounts: range) -> None:
    log.append_many(
        "orders",
        [
            {"payload": {"amount": amount}, "type": "order.created", "ordering_key": f"c-{amount % 3}"}
            for amount in amounts
        ],
    )


def spent(project: Path) -> dict[str, float]:
    rows = pq.read_table(project / "state" / "spark-warehouse" / "revenue").to_pylist()
    return {row["customer"]: row["spent"] for row in rows}


@pytest.mark.shows("S13")
@pytest.mark.timeout(900)
def test_a_pipeline_reads_from_a_log_and_writes_to_it(
    postgres_log: penstock.Log, postgres_log_url: str, project: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    order(log, range(90, 105))
    run(project, url)
    assert sorted(event.json()["amount"] for event in log.read("alerts")) == [100, 101, 102, 103, 104]
    assert {(one.group, one.published, one.claimed) for one in log.stats().groups} == {("lake", 15, 0)}
    order(log, range(105, 110))
    run(project, url)  # the second run takes only new events
    alerts = log.read("alerts")
    assert sorted(event.json()["amount"] for event in alerts) == list(range(100, 110))
    assert {event.event_type for event in alerts} == {"order.large"}
    assert {event.ordering_key for event in alerts} == {"c-0", "c-1", "c-2"}
    assert {(one.group, one.published, one.claimed) for one in log.stats().groups} == {("lake", 20, 0)}
    amounts = range(90, 110)
    assert spent(project) == {f"c-{key}": sum(one for one in amounts if one % 3 == key) for key in range(3)}
    assert {one.name for one in project.iterdir()} == {*BROUGHT, "state", "spark-pipeline.local.yml", "local"}
