"""An app in a file that executors of the test cluster do not see, and Pythons that are not fit to run it."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import penstock as library
from tests.support.done_table import create_done_table
from tests.support.raw_sql import raw
from tests.support.spark_cluster import SparkCluster

APP = '''
import json
from pathlib import Path

import penstock

app = penstock.App(None, name="shop")


@app.subscribe("orders", group="screen", batch_seconds=0.5)
def screen(event, ctx):
    """Use what was sent along, if anything was: it is in the executor's working directory."""
    sent = [place.read_text() for place in (Path("rates.txt"), Path("countries/list.txt")) if place.exists()]
    ctx.execute("insert into done (n, name) values (?, ?)", (event.offset, " ".join(sent)))


@app.job("mail")
def send(mail):
    """A module that only executors to which it was sent can import."""
    return mail["to"].upper()


def double(n):
    return 2 * n


def note(batch, batch_id):
    """On the driver: the session as the app has it."""
    names = ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions", "spark.scheduler.mode", "spark.app.name")
    seen = {name: batch.sparkSession.conf.get(name) for name in names}
    seen["master"] = batch.sparkSession.sparkContext.master
    seen["doubled"] = sorted(row.doubled for row in batch.collect())
    Path(__file__).with_name("seen.json").write_text(json.dumps(seen))


@app.pipeline("orders", group="lake", sink=penstock.sinks.ForeachBatch(note))
def lake(batch):
    from pyspark.sql import functions as f

    return batch.select("offset", f.udf(double, "bigint")("offset").alias("doubled"))


if __name__ == "__main__":
    app.run(until_drained=True)
'''


class ClusterShop:
    """A folder of its own below what executors do not see, and a log with ten orders."""

    def __init__(self, cluster: SparkCluster, url: str) -> None:
        self.url = url
        self.directory = cluster.unseen / uuid.uuid4().hex
        self.directory.mkdir()
        self.app = self.directory / "clustershop.py"
        self.app.write_text(APP)
        create_done_table(url)
        with library.open(url) as log:
            log.append_many("orders", [{"payload": {"n": n}, "type": "t"} for n in range(10)])
            log.submit_many("mail", [{"payload": {"to": name}} for name in ("ada", "bob")])

    def done(self) -> list[tuple[int, str]]:
        """What the handler did: offsets, and what it read of the files that were sent along."""
        with raw(self.url) as sql:
            return [tuple(row) for row in sql("select n, name from done order by n")]

    def claimers(self) -> set[str]:
        """Who has claimed anything."""
        with raw(self.url) as sql:
            return {name for (name,) in sql("select distinct claimed_by from penstock.leases")}


def python_that(directory: Path, name: str, does: str) -> Path:
    """A Python like ours that first runs `does`, as an executor's interpreter may differ from the driver's."""
    home = directory / name
    home.mkdir()
    (home / "sitecustomize.py").write_text(does)
    program = home / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{home}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


IS_ANOTHER_VERSION = """
import collections, platform, sys
sys.version_info = collections.namedtuple("version_info", "major minor micro releaselevel serial")(3, 99, 0, "final", 0)
platform.python_version = lambda: "3.99.0"
"""
HAS_NO_PENSTOCK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "penstock":
            raise ModuleNotFoundError("No module named 'penstock'", name="penstock")

sys.meta_path.insert(0, Missing())
"""
CANNOT_OPEN_THE_DATABASE = "import os; os.environ['PGSSLMODE'] = 'require'  # the tests' server has none\n"
