"""What a preflight task runs on an executor. It is sent by value: import nothing but the standard library here."""

from __future__ import annotations

from typing import Any

Place = tuple[str, str, int]  # host, working directory, and the process that starts Python: one per executor


def look(wanted: bytes, expected: tuple[str, str | None]) -> tuple[Place, str | None]:
    """Return where this executor is, and what is wrong with it, if anything is.

    `wanted` is a pickled `Needs`, `expected` the versions of Python and Penstock on the driver.
    """
    import importlib
    import os
    import pathlib
    import pickle
    import platform
    import socket
    import sys
    import time

    def root_of(error: BaseException) -> str:
        found = error
        while found.__cause__ is not None:
            found = found.__cause__
        said = f"{type(error).__name__}: {getattr(error, 'message', error)}"
        cause = f"{found}".partition("\n")[0]
        return said if cause in said else f"{said} ({type(found).__name__}: {cause})"

    def installed() -> Any:
        try:
            from importlib import metadata

            return metadata.version("penstock")
        except Exception:  # a source folder on the path
            return None

    place = (socket.gethostname(), str(pathlib.Path.cwd()), os.getppid())
    python, version = expected
    time.sleep(0.05)  # so that one executor does not take all tasks
    if platform.python_version().rpartition(".")[0] != python:
        return place, f"its Python ({sys.executable}) is {platform.python_version()}, and the driver's is {python}."
    try:
        home = importlib.import_module("penstock").__file__
    except ImportError as error:
        return place, f"its Python ({sys.executable}) cannot import Penstock: {root_of(error)}."
    found = installed()
    if None not in (found, version) and found != version:
        return place, f"its Penstock ({home}) is {found}, and the driver's is {version}."
    try:
        from penstock.spark.preflight import check_here

        check_here(pickle.loads(wanted))
    except BaseException as error:
        return place, root_of(error)
    return place, None
