"""The Dockerfile's commands, run one by one in clean Debian roots, and the service that it ends with."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.dockerfile import Stage, copies, read_dockerfile
from tests.support.server_process import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
FROM_HERE = {"/etc/resolv.conf": "etc", "/etc/hosts": "etc", "/etc/pip.conf": "etc", str(CERTIFICATES): "srv"}
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL")


def run(*command: str, **options: Any) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def mirror() -> str:
    """Where this machine gets its Debian from."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)"]
    lines = subprocess.run(targets, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [line.split()[0] for line in lines if line.endswith(" bookworm")]
    if not found:
        pytest.skip("this machine has no source of Debian 12")
    return found[0]


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian 12 with nothing but what every Debian has; $PENSTOCK_TEST_DEBIAN names one that is ready."""
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("only root on Debian can make a Debian root")
    if ready := os.environ.get("PENSTOCK_TEST_DEBIAN"):
        return Path(ready)
    place = tmp_path_factory.mktemp("debian")
    place.chmod(0o755)
    run("apt-get", "download", "debootstrap", cwd=place)
    run("dpkg", "-x", *(str(one) for one in place.glob("debootstrap*.deb")), str(place / "tool"))
    tool = place / "tool"
    surroundings = {**os.environ, "DEBOOTSTRAP_DIR": str(tool / "usr/share/debootstrap")}
    made = place / "root"
    run(str(tool / "usr/sbin/debootstrap"), "--variant=minbase", "bookworm", str(made), mirror(), env=surroundings)
    return made


class Machine:
    """A root directory in which the instructions of a stage are carried out."""

    def __init__(self, debian: Path, place: Path) -> None:
        self.place = place
        run("cp", "-a", str(debian), str(place))
        for name, folder in FROM_HERE.items():  # how this machine reaches the network
            if Path(name).is_file():
                shutil.copy(name, place / folder)

    def command(self, *words: str, user: str = "0:0") -> list[str]:
        return [CHROOT, f"--userspec={user}", str(self.place), *words]

    def follow(self, stage: Stage, earlier: dict[str | None, Machine]) -> None:
        surroundings = {name: os.environ[name] for name in PROXIES if name in os.environ}
        surroundings |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        if CERTIFICATES.is_file():
            surroundings["PIP_CERT"] = f"/srv/{CERTIFICATES.name}"
        told = iter(copies(stage))
        for instruction, value in stage.steps:
            if instruction == "RUN":
                run(*self.command("/bin/sh", "-c", value), env=surroundings)
            elif instruction == "COPY":
                source, what, to = next(told)
                self.copy(earlier[source].place if source else ROOT, what, to)

    def copy(self, origin: Path, what: list[str], to: str) -> None:
        target = self.place / to.strip("/")
        for one in what:
            source = origin / one.strip("/")
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


@pytest.mark.shows("O09")
def test_it_builds_and_runs_in_a_clean_debian(debian: Path, tmp_path: Path) -> None:
    machines: dict[str | None, Machine] = {}
    for number, stage in enumerate(read_dockerfile(DOCKERFILE, EXTRAS="postgres,http,jobs")):
        machines[stage.name] = Machine(debian, tmp_path / str(number))
        machines[stage.name].follow(stage, machines)
    final, port = machines[None], str(free_port())
    words = [*stage.words("ENTRYPOINT"), *stage.words("CMD")]
    words = [{"0.0.0.0": "127.0.0.1", "8787": port}.get(word, word) for word in words]
    inside = f"cd {stage.last('WORKDIR')} && exec {' '.join(words)}"
    process = subprocess.Popen(
        final.command("/bin/sh", "-c", inside, user=stage.last("USER")),
        env={**stage.environment(), "PENSTOCK_TOKEN": "secret", "PENSTOCK_URL": "sqlite:///log.db"},
    )
    try:

        def answers() -> bool:
            assert process.poll() is None
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200
            except OSError:
                return False

        wait_until(answers, "the service")
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
