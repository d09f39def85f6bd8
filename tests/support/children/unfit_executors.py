"""Call `penstock run` again and again on one session of a cluster, each time with other executors' Python.

Arguments: master, app, URL, then name=python for every try but the last, which sends the app along and is well.
Prints exit codes and documents as one JSON line.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

from penstock.cli.app import run
from penstock.spark.session import make_session
from tests.support.spark_cluster import DRIVER_CONF


def main(master: str, app: str, url: str, sent: str, *pythons: str) -> None:
    spark = make_session(master, config=DRIVER_CONF)
    command = ["run", app, "--url", url, "--until-drained", "--json"]
    said = {"no_app": _said(command)}
    for name, _, python in (one.partition("=") for one in pythons):
        spark.sparkContext.pythonExec = python
        said[name] = _said([*command, "--py-files", app])
    spark.sparkContext.pythonExec = sys.executable
    said["other_master"] = _said([*command, "--master", "local[2]"])
    said["other_conf"] = _said([*command, "--conf", "spark.executor.memory=3g"])
    with_all = ["--py-files", app, *sent.split(" "), "--conf", "spark.executor.memory=512m", "--master", master]
    said["well"] = _said([*command, *with_all])
    said["session"] = [spark.range(7).count(), {}]  # it was never ours to stop
    print(json.dumps(said), flush=True)
    spark.stop()


def _said(command: list[str]) -> list[Any]:
    out = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(out, write_through=True)):
        code = run(command)
        return [code, json.loads(out.getvalue())]


if __name__ == "__main__":
    main(*sys.argv[1:])
