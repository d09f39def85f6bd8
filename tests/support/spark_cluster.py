"""A real standalone Spark cluster: a master and two workers from the wheel's own classes, on this machine.

Its executors have a working directory and an environment of their own. They can import Penstock, and do not see what is
below `unseen`: an app in that folder is as far away from them as on another machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from tests.support.class_archive import SHORT_LIVED, jvm_options
from tests.support.running import ROOT
from tests.support.unprivileged import free_port
from tests.support.waiting import wait_until

START_SECONDS = 60
_DAEMON_OPTIONS = f"{jvm_options()} -Xss512k"
DRIVER_CONF: Final = {  # for drivers: small executors, nothing that listens elsewhere
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _DAEMON_OPTIONS,
    "spark.ui.enabled": "false",
}
# Kills the process groups of the cluster when the process that started it was killed.
_LEASH = 'read -r _; for one in "$@"; do kill -KILL "-$one"; done'


class SparkCluster:
    """Starts on `with`; give its `url` as the master. Workers can be killed and added.

    A driver is a process of its own (see `tests.support.running`); `DRIVER_CONF` keeps its executors small.
    """

    def __init__(self, directory: Path, *, workers: int = 2, cores: int = 1) -> None:
        self._directory = directory
        self._wanted, self._cores = workers, cores
        self.unseen = directory / "unseen"  # executors find nothing below it
        self.python_path = [ROOT / "tests" / "support" / "executors", ROOT / "src"]
        self.url = ""
        self.master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._leashes: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self.unseen.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.master = self._launch("master", "Master", "--host", "127.0.0.1", "--port", port, "--webui-port", 0)
        self._wait_for(self.master, "master", "New state: ALIVE")
        begun = [self._launch_worker() for _ in range(self._wanted)]
        for worker in begun:
            self._wait_for(*worker, "Successfully registered with master")

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start one more worker; returns when the master knows it."""
        process, name = self._launch_worker()
        self._wait_for(process, name, "Successfully registered with master")
        return process

    def kill_worker(self, worker: subprocess.Popen[bytes]) -> None:
        """SIGKILL to a worker and its executors, as if its machine had lost power."""
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.workers.remove(worker)

    def executors(self) -> list[int]:
        """The pids of the executors that run now."""
        return [pid for worker in self.workers for pid in _children(worker.pid)]

    def stop(self) -> None:
        """Kill everything; nothing of a test cluster is worth a slow goodbye."""
        for worker in [*self.workers]:
            self.kill_worker(worker)
        if self.master is not None:
            self.master.kill()
            self.master.wait()
            self.master = None
        for leash in self._leashes:
            leash.kill()
            leash.wait()
            if leash.stdin is not None:
                leash.stdin.close()
        self._leashes.clear()

    def log(self, name: str) -> str:
        """What the master (`master`) or a worker (`worker-1`, …) has written."""
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def _launch_worker(self) -> tuple[subprocess.Popen[bytes], str]:
        self._started += 1
        name = f"worker-{self._started}"
        place = self._directory / name
        options = ("--host", "127.0.0.1", "--webui-port", 0, "--cores", self._cores, "--memory", "2g")
        process = self._launch(name, "Worker", *options, "--work-dir", place, self.url)
        self.workers.append(process)
        return process, name

    def _launch(self, name: str, kind: str, *options: object) -> subprocess.Popen[bytes]:
        command = [spark_home() / "bin" / "spark-class", f"org.apache.spark.deploy.{kind.lower()}.{kind}", *options]
        with (self._directory / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                [str(one) for one in command],
                cwd=self._directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._leashes.append(
            subprocess.Popen(
                ["/bin/sh", "-c", _LEASH, "leash", str(process.pid)],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        return process

    def _environment(self) -> dict[str, str]:
        """Nothing of the tests' own environment but where programs are."""
        from penstock.spark.java import find_java

        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "JAVA_HOME": str(find_java()),
            "SPARK_HOME": str(spark_home()),
            "PYTHONPATH": os.pathsep.join(map(str, self.python_path)),
            "TEST_HIDDEN_FOLDERS": str(self.unseen),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
        }

    def _wait_for(self, process: subprocess.Popen[bytes], name: str, words: str) -> None:
        def ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{name} did not start:\n{self.log(name)}")
            return words in self.log(name)

        wait_until(ready, f"{name} to say {words!r}", START_SECONDS)


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """A standalone cluster of two workers with one core each, for the whole run."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
    try:
        with SparkCluster(directory) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def spark_home() -> Path:
    """Where the wheel has Spark's programs and classes."""
    import pyspark

    return Path(pyspark.__path__[0]).resolve()


def _children(pid: int) -> list[int]:
    listed: list[str] = []  # by thread: a JVM starts processes in any of them
    for one in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            listed += one.read_text().split()
    return sorted({int(one) for one in listed})
