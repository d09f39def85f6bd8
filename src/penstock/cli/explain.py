"""`penstock explain` and `penstock version`: what can be said without a log."""

from __future__ import annotations

import difflib
import inspect
import platform
import re
import sys
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.command import START, command, root
from penstock.cli.completion import codes
from penstock.cli.failures import UnknownCode
from penstock.cli.session import Session
from penstock.errors import PenstockError, all_errors


@command(root, "explain", panel=START, example="penstock explain lease_lost")
def explain(
    session: Session,
    *,
    code: Annotated[
        str | None,
        typer.Argument(metavar="CODE", help="The code of an error.", show_default=False, autocompletion=codes),
    ] = None,
) -> None:
    """Explain an error by its code, or list all codes."""
    known = all_errors()
    if code is None:
        rows = [(name, _message(error)) for name, error in known.items()]
        documents = [_document(error) for error in known.values()]
        session.answer({"errors": documents}, lambda: output.pairs(rows))
        return
    wanted = code.strip().strip("[]").lower().replace("-", "_")
    by_name = {error.__name__.lower(): error for error in known.values()}
    found = known.get(wanted) or by_name.get(wanted)
    if found is None:
        near = difflib.get_close_matches(wanted, [*known, *by_name], n=4, cutoff=0.5)
        codes = dict.fromkeys(one if one in known else by_name[one].code for one in near)
        meant = f" Did you mean {', '.join(codes)}?" if codes else ""
        raise UnknownCode(f"No error has the code {code[:60]!r}.{meant}")
    facts = [("code", found.code), ("error", found.__name__), ("meaning", _message(found)), ("what to do", found.hint)]
    session.answer(_document(found), lambda: output.pairs(facts))


def _message(error: type[PenstockError]) -> str:
    return " ".join(inspect.cleandoc(error.__doc__ or "").split())


def _document(error: type[PenstockError]) -> dict[str, str]:
    return {"code": error.code, "error": error.__name__, "message": _message(error), "hint": error.hint}


@command(root, "version", panel=START, example="penstock version")
def version(session: Session) -> None:
    """Print the versions of Penstock and of what it stands on."""
    print_versions(session)


def print_versions(session: Session) -> None:
    """What `penstock version` and `penstock --version` print."""
    from sqlite3 import sqlite_version

    versions: dict[str, str | None] = {
        "penstock": _installed("penstock"),
        "python": platform.python_version(),
        "sqlite": sqlite_version,
        "psycopg": _installed("psycopg"),
        "pyspark": _installed("pyspark"),
        "java": _java(),
        "platform": f"{sys.platform} {platform.machine()}",
    }
    missing = {"java": "not found"}
    rows = [(name, text or missing.get(name, "not installed")) for name, text in versions.items()]
    session.answer(versions, lambda: output.pairs(rows))


def _installed(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java() -> str | None:
    """The version of the Java that Spark would use."""
    import subprocess

    from penstock.spark.java import find_java

    try:
        java = find_java() / "bin" / "java"
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.SubprocessError, PenstockError):
        return None
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else None
