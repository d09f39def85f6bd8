"""Find a name for an app under which other processes can load it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType

from penstock.declare import load
from penstock.declare.subscription import Subscription
from penstock.errors import AppNotFound


def reference_of(app: object, subscriptions: Sequence[Subscription]) -> str:
    """`file.py:name` or `module:name`, as `load_object` takes it.

    Prefer `__main__`: it imports every module that declares handlers; another module may not.
    """
    homes = [getattr(handler.function, "__module__", "") for one in subscriptions for handler in one.handlers]
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


def being_loaded() -> bool:
    """Whether the caller runs only because `load` is importing its file."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == load.__name__:
            return True
        frame = frame.f_back
    return False
