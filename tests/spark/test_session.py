"""The way to a Spark session: whose settings count, whose session is used, and what is refused at the door."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import InvalidInput, SparkConnectRefused
from penstock.spark import session, settings
from penstock.spark.run import Submit, session_for
from tests.cli import conftest as cli
from tests.cli.conftest import Command
from tests.support.raw_sql import raw
from tests.support.running import PYTHONPATH

command = cli.command


APP = """
import penstock

app = penstock.App(None, name="shop")

@app.subscribe("orders", group="screen")
def screen(event):
    pass
"""
PIPELINE = """
import penstock

app = penstock.App(None, name="shop")

@app.pipeline("orders", group="lake", sink=penstock.sinks.{sink})
def lake(batch):
    return batch.selectExpr("offset", "event_type as kind")
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(APP)
    return path


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.shows("S16")
def test_settings_of_files_and_of_submit_arguments_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a JVM to ask: spark-defaults.conf, then --properties-file and --conf of PYSPARK_SUBMIT_ARGS."""
    monkeypatch.setattr(settings, "_has_jvm", lambda: False)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert settings.set_by_user() == {}
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n\nspark.master   spark://a:7077\nspark.app.name=shop\nspark.x: 1 = 2\nspark.y\n"
    )
    assert settings.set_by_user() == {
        "spark.master": "spark://a:7077",
        "spark.app.name": "shop",
        "spark.x": "1 = 2",
        "spark.y": "",
    }
    (tmp_path / "more.conf").write_text("spark.x 3\nspark.z 4\n")
    said = f"--conf spark.z=5 --master 'spark://b:7077' --properties-file {tmp_path}/more.conf --name n pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", said)
    found = settings.set_by_user()
    assert (found["spark.master"], found["spark.x"], found["spark.z"]) == ("spark://b:7077", "3", "5")


@pytest.mark.shows("S16")
def test_settings_of_a_jvm_are_the_users_but_for_those_we_started_it_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under spark-submit, and for a second session of a process."""
    monkeypatch.setattr(settings, "_has_jvm", lambda: True)
    monkeypatch.setattr(settings, "launched", {"spark.scheduler.mode": "FAIR", "spark.sql.session.timeZone": "UTC"})
    users = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.executor.memory": "2g"}
    unset = {"spark.master": "local[*]", "spark.app.name": "pyspark-shell", "spark.scheduler.mode": "FAIR"}
    monkeypatch.setattr(settings, "_of_jvm", lambda: {**users, **unset})
    assert settings.set_by_user() == users


@pytest.mark.shows("S16")
def test_a_session_that_is_not_ours_is_used_and_never_stopped(spark: Any) -> None:
    master, url = spark.sparkContext.master, "postgresql://nobody@nowhere/log"
    for refused in (Submit("local[7]"), Submit(conf={"spark.executor.memory": "3g"})):
        with pytest.raises(InvalidInput, match="A Spark session"), session_for(None, refused, "shop", url):
            pass
    for accepted in (Submit(), Submit("local[2]"), Submit(master, {"spark.ui.enabled": "false"})):
        with session_for(None, accepted, "shop", url) as used:
            assert used.sparkContext is spark.sparkContext
    with ThreadPoolExecutor(1) as other:  # where it is not the active session
        assert other.submit(session.active_session).result().sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


# --- refused at the door --------------------------------------------------------------------------------------------


@pytest.mark.shows("S27")
@pytest.mark.parametrize(
    ("name", "value"),
    [("SPARK_REMOTE", "sc://nowhere"), ("SPARK_API_MODE", "connect"), ("SPARK_CONNECT_MODE_ENABLED", "1")],
)
def test_an_environment_of_spark_connect_is_refused(
    command: Command, app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """By `penstock run`, with handlers and with a pipeline, by `app.run`, and where a session is made."""
    monkeypatch.setenv(name, value)
    (tmp_path / "lake.py").write_text(PIPELINE.format(sink="Stream('copy')"))
    url = f"sqlite:///{tmp_path / 'log.db'}"
    for file in (app, tmp_path / "lake.py"):
        refused = command("run", file, "--url", url, "--json")
        assert (refused.code, refused.error) == (2, "spark_connect_refused"), refused
    with pytest.raises(SparkConnectRefused):
        session.make_session()
    with pytest.raises(SparkConnectRefused):
        session.active_session()


@pytest.mark.shows("S27")
def test_settings_and_sessions_of_spark_connect_are_refused(log: penstock.Log) -> None:
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    shop = penstock.App(log.store.url, name="shop")
    shop.subscribe("orders", group="screen", isolation="inline")(lambda event: None)
    with pytest.raises(SparkConnectRefused):
        shop.run(spark=connected)
    for conf in ({"spark.remote": "sc://nowhere"}, {"spark.api.mode": "connect"}):
        with pytest.raises(SparkConnectRefused):
            session.check_not_connect(conf)


@pytest.mark.shows("S17")
@pytest.mark.timeout(300)
def test_bad_input_is_one_coded_error_before_the_first_claim(
    postgres_log: penstock.Log, tmp_path: Path, app: Path
) -> None:
    """In one separate process: a master that is not there, one that is none; then pipelines whose sinks cannot work."""
    url = postgres_log.store.url
    postgres_log.append("orders", {"n": 1}, type="t")
    with raw(url) as sql:
        sql("create table narrow (id bigint)")
    (tmp_path / "file").write_text("not a folder")
    for name, sink in {
        "table": "Table('nowhere')",
        "column": "Table('narrow')",
        "folder": f"Parquet('{tmp_path}/file/lake')",
    }.items():
        (tmp_path / f"{name}.py").write_text(PIPELINE.format(sink=sink))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and nobody listens
        masters = [f"spark://127.0.0.1:{held.getsockname()[1]}", "spark://nonsense", "elsewhere"]
        tries = [*((app, master) for master in masters), *((tmp_path / f"{n}.py", "local[1]") for n in _SINKS)]
        script = textwrap.dedent("""
            import sys
            from penstock.cli.app import run
            url, *tries = sys.argv[1:]
            for app, master in (one.split(" ") for one in tries):
                print(run(["run", app, "--url", url, "--master", master, "--until-drained", "--json"]), flush=True)
        """)
        done = subprocess.run(
            [sys.executable, "-c", script, url, *(f"{app} {master}" for app, master in tries)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr
    codes = [line for line in done.stdout.split() if line.isdecimal()]
    assert codes == ["1"] * 6, done.stdout
    assert done.stdout.count('"spark_unavailable"') == 3 and done.stdout.count('"invalid_pipeline"') == 3, done.stdout
    for words in (
        "There is no Spark master at",
        "elsewhere",
        "no table 'nowhere'",
        "no column 'kind'",
        "cannot be written",
    ):
        assert words in done.stdout, done.stdout
    with raw(url) as sql:
        assert [*sql("select count(*) from penstock.leases")] == [(0,)], "nothing was claimed"


_SINKS = ("table", "column", "folder")


@pytest.mark.shows("S17")
def test_what_cannot_be_sent_is_refused(command: Command, app: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    missing = command("run", app, "--url", url, "--py-files", f"{app},{tmp_path}/none.zip", "--json")
    assert (missing.code, missing.error) == (2, "invalid_input") and "none.zip" in missing.out
    for conf in ("spark.executor.memory", "executor.memory=1g"):
        refused = command("run", app, "--url", url, "--conf", conf, "--json")
        assert (refused.code, refused.error) == (2, "usage")
    local = command("run", app, "--url", url, "--engine", "local", "--files", str(app), "--json")
    assert (local.code, local.error) == (2, "invalid_input") and "--files" in local.out
