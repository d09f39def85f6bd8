"""The recipe of docs/how-to/spark-cluster.md: executors with nothing but Spark get an environment as an archive."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.cluster_shop import ClusterShop
from tests.support.running import PYTHONPATH, ROOT, penstock
from tests.support.spark_cluster import DRIVER_CONF, SparkCluster

PATIENCE_SECONDS = 600


@pytest.mark.shows("S17")
def test_a_virtual_environment_travels_as_an_archive(tmp_path: Path, postgres_log_url: str) -> None:
    environment, packed = tmp_path / "environment", tmp_path / "environment.tar.gz"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "-q", f"{ROOT}[postgres,arrow]"], check=True)
    with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
        archive.add(environment, ".")
    conf = [part for name, value in DRIVER_CONF.items() for part in ("--conf", f"{name}={value}")]
    cluster = SparkCluster(tmp_path / "cluster")
    cluster.python_path = []
    with cluster:
        shop = ClusterShop(cluster, postgres_log_url)
        given = ("--archives", f"{packed}#environment", "--py-files", shop.app, "--group", "screen")
        command = (
            "run",
            shop.app,
            "--url",
            shop.url,
            "--master",
            cluster.url,
            *given,
            *conf,
            "--until-drained",
            "--json",
        )
        settings = {"PYTHONPATH": PYTHONPATH, "PYSPARK_PYTHON": "./environment/bin/python"}
        with penstock(shop.directory, *command, environment=settings) as running:
            assert running.process.wait(PATIENCE_SECONDS) == 0, running.out + running.err
    assert json.loads(running.out)["groups"]["orders/screen"]["published"] == 10
    assert [n for n, _ in shop.done()] == list(range(1, 11))
