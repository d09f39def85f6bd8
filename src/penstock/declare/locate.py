"""Find a name for an app under which other processes can load it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from penstock.declare import load
from penstock.declare.load import Reference
from penstock.errors import AppNotFound, HandlerUnreachable


def reference_to_object(one: object) -> Reference:
    """Return a reference to an object that has a name at the top level of a module."""
    for name in dict.fromkeys(["__main__", *sys.modules]):
        module = sys.modules.get(name)
        if not isinstance(module, ModuleType):
            continue
        attribute = next((key for key, value in [*vars(module).items()] if value is one), None)
        path, spec = getattr(module, "__file__", None), getattr(module, "__spec__", None)
        if attribute is not None and (name != "__main__" or path is not None):
            return Reference(str(spec.name) if name == "__main__" and spec is not None else name, path, attribute)
    raise HandlerUnreachable("Other processes cannot find this app: give it a name at the top level of a module.")


def reference_of(app: object, functions: Sequence[Any]) -> str:
    """`file.py:name` or `module:name`, as `load_object` takes it; `functions` are those that it declares.

    Prefer `__main__`: it imports every module that declares functions; another module may not.
    """
    homes = [getattr(one, "__module__", "") for one in functions]
    for name in dict.fromkeys(["__main__", *homes, *sys.modules]):
        module = sys.modules.get(name)
        if not isinstance(module, ModuleType):
            continue
        attribute = next((key for key, value in [*vars(module).items()] if value is app), None)
        place = _place(name, module)
        if attribute is not None and place is not None:
            return f"{place}:{attribute}"
    raise AppNotFound("Other processes cannot find this app: give it a name at the top level of a .py file or module.")


def _place(name: str, module: ModuleType) -> str | None:
    """Return what another process must import to get this module."""
    path, spec = getattr(module, "__file__", None), getattr(module, "__spec__", None)
    if name == "__main__" and spec is not None:  # python -m package.module
        return str(spec.name)
    if name == "__main__" or name.startswith("penstock_app_"):
        return str(Path(path).resolve()) if path is not None and path.endswith(".py") else None
    return name


def check_not_loading() -> None:
    """Refuse to run an app whose file is only being imported: processes of a run would start runs of their own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == load.__name__:
            raise AppNotFound('Importing the app called run(). Put the call under `if __name__ == "__main__":`.')
        frame = frame.f_back
