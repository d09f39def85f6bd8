"""The systemd units: systemd accepts them, and what they start works and stops as they say."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from tests.support.server_process import free_port
from tests.support.unit_files import command_of, read_environment, read_unit
from tests.support.valkey_server import ValkeyServer
from tests.support.waiting import wait_until

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
NAMES = sorted(path.name for path in UNITS.glob("*.service"))

APP = """
from penstock import App, connect

app = App(name="shop")
app.ingest(connect.ValkeyStream("{valkey}", "clicks", group="penstock"), into="clicks")


@app.subscribe("orders", group="fraud")
def screen(event):
    pass


@app.job("email:send")
def send(mail):
    return "sent"
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`penstock` of this checkout, as a program."""
    path = tmp_path_factory.mktemp("bin") / "penstock"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock.cli "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_them_and_finds_little_to_attack(tmp_path: Path, program: str) -> None:
    for name in NAMES:
        text = (UNITS / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/opt/penstock/bin/penstock", program))
    units = [str(tmp_path / name) for name in NAMES]
    done = subprocess.run(["systemd-analyze", "verify", *units], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", *units],
        check=False,
        capture_output=True,
        text=True,
    )
    assert judged.returncode == 0, judged.stdout  # 2.0 of 10 at most


def test_every_unit_has_a_user_a_stop_and_known_settings() -> None:
    assert len(NAMES) == 4
    for name in NAMES:
        unit = read_unit(UNITS / name)
        assert unit["User"] == ["penstock"] and unit["NoNewPrivileges"] == ["yes"]
        (settings,) = unit["EnvironmentFile"]
        known = read_environment(UNITS / ("serve.env" if "serve" in settings else "app.env"))
        assert command_of(UNITS / name, known, "penstock")[0] == "penstock"
        assert int(unit["TimeoutStopSec"][0]) >= 20


@contextmanager
def started(command: list[str], directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, cwd=directory, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.wait()


@pytest.mark.shows("O09")
def test_what_the_units_start_works_and_stops_at_sigterm(tmp_path: Path, program: str) -> None:
    port = free_port()
    url = f"sqlite:///{tmp_path}/shop.db"
    values = {"PENSTOCK_URL": url, "PENSTOCK_PROCESSES": "1", "PENSTOCK_HOST": "127.0.0.1", "PENSTOCK_PORT": str(port)}
    with ValkeyServer() as valkey, penstock.open(url) as log:
        (tmp_path / "app.py").write_text(APP.format(valkey=valkey.url))
        log.append("orders", {"id": 1}, type="order.created")
        job = log.submit("email:send", {"to": "ada"})
        client = valkey.client()
        client.xadd("clicks", {"page": "home"})
        client.close()

        def commands(name: str) -> list[str]:
            return command_of(UNITS / name, values, program)

        with started(commands("penstock-serve.service"), tmp_path, {**values, "PENSTOCK_TOKEN": "secret"}):

            def answers() -> bool:
                try:
                    return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200
                except OSError:
                    return False

            with started(commands("penstock-ingest@.service"), tmp_path, values):
                wait_until(lambda: "clicks" in log.streams(), "the ingest")
                with started(commands("penstock-worker@.service"), tmp_path, values):
                    wait_until(lambda: log.job(job.id).status == "PUBLISHED", "the worker")
            with started(commands("penstock-run@.service"), tmp_path, values):
                wait_until(lambda: any(one.published for one in log.stats("orders").groups), "the handlers")
            wait_until(answers, "the service")
