"""What an app may declare for one group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.errors import PolicyConflict


class Declared(Protocol):
    """Something that works for a group."""

    @property
    def stream(self) -> str: ...
    @property
    def group(self) -> str: ...


def check_free(stream: str, group: str, **declared: Sequence[Declared]) -> None:
    """Check that nothing of these kinds is declared for a group."""
    for kind, ones in declared.items():
        if any((one.stream, one.group) == (stream, group) for one in ones):
            raise PolicyConflict(
                f"{stream}/{group} already has a {kind}: a group has handlers, one pipeline or one query."
            )
