"""Other systems: the log over HTTP (`penstock.connect.http`). Modules are imported when they are first used."""

from importlib import import_module
from typing import Any

__all__ = ["http"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
