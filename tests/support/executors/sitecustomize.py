"""Hide folders from the Python processes of a test cluster's executors, as if they were on other machines.

Python imports this at its start wherever its folder is on PYTHONPATH.
"""

import os
import sys
from typing import Any

_HIDDEN = tuple(one for one in os.environ.get("TEST_HIDDEN_FOLDERS", "").split(os.pathsep) if one)
_LOOKS = ("open", "os.listdir", "os.scandir", "os.mkdir")
_stat = os.stat


def _check(place: Any) -> None:
    if isinstance(place, (str, bytes, os.PathLike)):
        path = os.path.abspath(os.fsdecode(place))
        if any(path == one or path.startswith(f"{one}{os.sep}") for one in _HIDDEN):
            raise FileNotFoundError(2, "No such file or directory", path)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _LOOKS and arguments:
        _check(arguments[0])


def _checked_stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
    _check(path)
    return _stat(path, *arguments, **options)


if _HIDDEN:
    sys.addaudithook(_hook)
    os.stat = _checked_stat  # what pathlib and os.path ask; there is no audit event for it
