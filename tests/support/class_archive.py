"""Spark's classes, loaded and verified once for all JVMs that tests start: they then start in half the time.

This is Java's class data sharing. A JVM without the archive, or one that it does not fit, starts as usual.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

SHORT_LIVED: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # for JVMs that end before a better compiler pays
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 300


def archive() -> Path:
    """Where the archive of this Java and this Spark is, or will be."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "/nonexistent")
    age = java.stat().st_mtime_ns if java.exists() else 0
    found = find_spec("pyspark")
    spark = f"{Path(str(found.origin)).resolve()} {version('pyspark')}" if found else None
    made_of = f"{java.resolve()} {age} {spark}"
    return Path(sys.prefix, f"spark-classes-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa")


def jvm_options() -> str:
    """For every JVM with Spark's class path."""
    found = archive()
    if not (found.exists() and found.stat().st_size):
        return SHORT_LIVED
    # Without the last option a JVM would complain when the archive does not fit its class path.
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={found} -Xlog:disable"


def make_archive() -> None:
    """Make the archive unless it exists. It takes half a minute, once for every Java and Spark."""
    wanted = archive()
    with wanted.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.exists():
            return
        print("preparing Spark's classes for the tests, once", flush=True)
        draft = wanted.with_suffix(".draft")
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.children.typical_driver"],
            cwd=ROOT,
            env={**os.environ, "SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} -Xlog:disable -XX:ArchiveClassesAtExit={draft}"},
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        if not draft.exists():
            print(f"they cannot be shared on this Java; JVMs of tests start as usual\n{done.stderr}")
            draft.touch()  # do not try again
        draft.replace(wanted)


if __name__ == "__main__":
    make_archive()
