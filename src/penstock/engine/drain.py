"""Find out whether an app has nothing left to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.core.job import PREFIX
from penstock.errors import AWAY
from penstock.log.log import Log

GONE = "the group was deleted"


class Served(Protocol):
    """A group that an engine works for."""

    @property
    def stream(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def name(self) -> str: ...


class Drained:
    """The drain check of an app. A paused group makes no progress: it counts as drained, and `paused` says why."""

    def __init__(self, log: Log, groups: Sequence[Served]) -> None:
        self._log = log
        self._groups = groups
        self._left: Served | None = None  # one with something left, at the last look
        self.paused: dict[str, str] = {}

    def look(self) -> bool:
        """Whether nothing is left in any group, and nothing was appended during the check."""
        try:
            if self._left is not None and not self._finished(self._left):
                return False
            before = self._log.end()
            left = [one for one in self._groups if not self._finished(one)]
            self._left = left[0] if left else None
            return not left and self._log.end() == before
        except AWAY:
            return False  # the workers report it and retry

    def _finished(self, one: Served) -> bool:
        group = next((group for group in self._log.groups(one.stream) if group.group_name == one.group), None)
        if group is None and one.stream.startswith(PREFIX):  # nobody has claimed from it
            return not self._log.read(one.stream, limit=1)
        if group is None or group.paused:
            why = GONE if group is None else group.pause_reason
            self.paused[one.name] = why or "paused by an operator"
            return True
        self.paused.pop(one.name, None)
        return self._log.drained(one.stream, one.group)
