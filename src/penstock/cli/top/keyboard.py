"""Single keys of a terminal, without waiting for enter."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Self

_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\r": "enter",
    b"\n": "enter",
    b"\x1b": "escape",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x03": "interrupt",
}


class Keyboard:
    """Standard input key by key; as it was before when the block ends."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before: list[Any] = []
        self._pressed = b""  # and not asked for yet

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._input)
        tty.setcbreak(self._input)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def key(self, seconds: float) -> str | None:
        """The next key, or None if none came in time; `interrupt` also when nobody is there any more."""
        if not self._pressed:
            ready, _, _ = select.select([self._input], [], [], max(0.0, seconds))
            if not ready:
                return None
            self._pressed = os.read(self._input, 64)
            if not self._pressed:
                return "interrupt"
        key, self._pressed = first_key(self._pressed)
        return key


def first_key(pressed: bytes) -> tuple[str | None, bytes]:
    """The first key of what was read at once, and the rest; a key that we do not know is None.

    >>> first_key(b"\\x1b[Bq"), first_key(b"q"), first_key(b"\\x1b")
    (('down', b'q'), ('q', b''), ('escape', b''))
    """
    for sequence, name in _NAMES.items():  # the longest first
        if pressed.startswith(sequence):
            return name, pressed[len(sequence) :]
    letter = pressed.decode("utf-8", "ignore")[:1]
    return letter or None, pressed[len(letter.encode()) or len(pressed) :]
