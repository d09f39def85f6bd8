"""An app on a standalone cluster whose executors do not see its file: spark-submit, and what preflight refuses."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest

import penstock
from tests.support.children import unfit_executors
from tests.support.cluster_shop import (
    CANNOT_OPEN_THE_DATABASE,
    HAS_NO_PENSTOCK,
    IS_ANOTHER_VERSION,
    ClusterShop,
    python_that,
)
from tests.support.running import PYTHONPATH, Running
from tests.support.spark_cluster import DRIVER_CONF, SparkCluster, spark_home

PATIENCE_SECONDS = 240


@pytest.fixture
def shop(spark_cluster: SparkCluster, postgres_log_url: str) -> ClusterShop:
    return ClusterShop(spark_cluster, postgres_log_url)


@pytest.mark.shows("S16", "S17")
@pytest.mark.timeout(300)
def test_spark_submit_decides_where_and_how_an_app_runs(
    spark_cluster: SparkCluster, shop: ClusterShop, tmp_path: Path
) -> None:
    """The master is that of the command, settings come from it and from spark-defaults.conf, and we fill the gaps."""
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{key}  {value}\n" for key, value in DRIVER_CONF.items()) + "spark.sql.session.timeZone=Asia/Tokyo\n"
    )
    options = ["--master", spark_cluster.url, "--conf", "spark.sql.shuffle.partitions=3", "--py-files", shop.app]
    environment = {
        "PYTHONPATH": PYTHONPATH,
        "PENSTOCK_URL": shop.url,
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
    }
    submit = [spark_home() / "bin" / "spark-submit", *options, shop.app]
    with Running(shop.directory, *submit, environment=environment) as running:
        assert running.process.wait(PATIENCE_SECONDS) == 0, running.err
    seen = json.loads((shop.directory / "seen.json").read_text())
    assert seen["master"] == spark_cluster.url
    assert seen["spark.sql.session.timeZone"] == "Asia/Tokyo" and seen["spark.sql.shuffle.partitions"] == "3"
    assert seen["spark.app.name"] == "clustershop.py" and seen["spark.scheduler.mode"] == "FAIR", "a gap we fill"
    assert seen["doubled"] == [2 * n for n in range(1, 11)]
    assert [n for n, _ in shop.done()] == list(range(1, 11))
    with penstock.open(shop.url) as log:
        assert [one.result for one in log.jobs(type="mail")] == ["ADA", "BOB"]
    handled = [one for one in shop.claimers() if one.endswith("/screen")]
    assert handled and all(one.split("/")[1].isdecimal() for one in handled), "executors claim, not the driver"


@pytest.mark.shows("S16", "S17")
@pytest.mark.timeout(300)
def test_executors_are_checked_before_the_first_claim(
    spark_cluster: SparkCluster, shop: ClusterShop, tmp_path: Path
) -> None:
    """One coded error with the root cause, exit 1, nothing claimed; then the same session runs the app and lives on."""
    pythons = {
        "another_version": python_that(tmp_path, "another_version", IS_ANOTHER_VERSION),
        "no_penstock": python_that(tmp_path, "no_penstock", HAS_NO_PENSTOCK),
        "no_database": python_that(tmp_path, "no_database", CANNOT_OPEN_THE_DATABASE),
    }
    (shop.directory / "rates.txt").write_text("1.17")
    (tmp_path / "list.txt").write_text("DE,FR")
    with tarfile.open(shop.directory / "countries.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "list.txt", "list.txt")
    sent = f"--files {shop.directory}/rates.txt --archives {shop.directory}/countries.tar.gz#countries"
    named = [f"{name}={path}" for name, path in pythons.items()]
    script = [sys.executable, "-m", unfit_executors.__name__, spark_cluster.url, shop.app, shop.url, sent, *named]
    with Running(shop.directory, *script, environment={"PYTHONPATH": PYTHONPATH}) as running:
        assert running.process.wait(PATIENCE_SECONDS) == 0, running.err
    said = json.loads(running.out.splitlines()[-1])
    reasons = {
        "no_app": f"There is no file {shop.app}",
        "another_version": "3.99",
        "no_penstock": "No module named 'penstock'",
        "no_database": "SSL",
    }
    for name, reason in reasons.items():
        code, document = said[name]
        assert (code, document["error"]["code"]) == (1, "executor_unfit"), said[name]
        assert reason in document["error"]["message"], said[name]
    assert "a slice was lost" not in running.err
    for name in ("other_master", "other_conf"):
        assert (said[name][0], said[name][1]["error"]["code"]) == (2, "invalid_input")
    published = {name: one["published"] for name, one in said["well"][1]["groups"].items()}
    assert (said["well"][0], published) == (0, {"orders/screen": 10, "orders/lake": 10, "jobs:default:mail": 2})
    assert said["session"][0] == 7
    assert shop.done() == [(n, "1.17 DE,FR") for n in range(1, 11)]
