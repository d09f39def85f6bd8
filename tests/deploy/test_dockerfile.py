"""The Dockerfile, without Docker: what it copies makes a wheel, and its last words start the service.

tests/prove/test_dockerfile.py runs all of it in a clean Debian.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from tests.support.dockerfile import copies, read_dockerfile
from tests.support.server_process import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


def test_it_ends_as_a_user_without_rights_and_names_existing_extras() -> None:
    build, final = read_dockerfile(DOCKERFILE)
    assert (build.name, final.base) == ("build", build.base)
    assert final.last("USER") == "10001:10001" and final.last("STOPSIGNAL") == "SIGTERM"
    assert not [run for run in final.all("RUN") if "pip" in run], "what builds does not stay"
    (line,) = [run for run in build.all("RUN") if "/src[" in run]
    extras = line[line.index("[") + 1 : line.index("]")].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*extras} <= {*known} and "spark" not in extras
    assert final.environment()["PATH"].startswith("/opt/penstock/bin:")
    assert copies(final) == [("build", ["/opt/penstock"], "/opt/penstock")]


@pytest.mark.shows("O09")
def test_what_it_copies_is_enough_to_build_the_package(tmp_path: Path) -> None:
    build, _ = read_dockerfile(DOCKERFILE)
    rules = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    for _, sources, target in copies(build):
        for source in sources:
            assert source in let_in, "Dockerfile.dockerignore keeps it out"
            to = tmp_path / target.strip("/")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, to)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=tmp_path / "src",
        check=True,
        capture_output=True,
    )
    assert [*tmp_path.glob("penstock-*.whl")]


@pytest.mark.shows("O09")
def test_its_last_words_start_the_service(tmp_path: Path) -> None:
    _, final = read_dockerfile(DOCKERFILE)
    assert final.words("ENTRYPOINT") == ["penstock"]
    port = str(free_port())
    words = [{"0.0.0.0": "127.0.0.1", "8787": port}.get(word, word) for word in final.words("CMD")]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *words],
        cwd=tmp_path,
        env={**os.environ, "PENSTOCK_TOKEN": "secret", "PENSTOCK_URL": "sqlite:///log.db"},
    )
    try:

        def answers() -> bool:
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).status == 200
            except OSError:
                return False

        wait_until(answers, "the service")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
