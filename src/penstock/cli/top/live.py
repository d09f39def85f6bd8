"""The loop of `penstock top`: look, draw, wait for a key or for the next look."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from penstock.cli import output
from penstock.cli.top.keyboard import Keyboard
from penstock.cli.top.sample import Sample, Sampler
from penstock.cli.top.view import SORTS, View
from penstock.errors import AWAY

if TYPE_CHECKING:
    from rich.console import RenderableType


class Top:
    """A screen that is drawn again with every look and every key."""

    def __init__(self, sampler: Sampler, view: View, interval: float) -> None:
        self._sampler, self._view, self._interval = sampler, view, interval
        self._console = output.console()
        self._sample: Sample | None = None
        self._trouble = ""

    def run(self) -> None:
        """Until q or Ctrl-C."""
        with (
            suppress(KeyboardInterrupt),
            Keyboard() as keyboard,
            Live(
                console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            next_at = 0.0
            while True:
                if time.monotonic() >= next_at:
                    self._look()
                    next_at = time.monotonic() + self._interval
                live.update(self._drawn(), refresh=True)
                key = keyboard.key(next_at - time.monotonic())
                if key is not None:
                    if not self.press(key):
                        return
                    if key == "enter" and self._view.opened:
                        next_at = 0.0  # its lanes are not known yet

    def _look(self) -> None:
        if self._view.paused and self._sample is not None:
            return
        try:
            self._sample, self._trouble = self._sampler.look(self._view.opened), ""
        except AWAY as error:  # what was seen last stays, and we look again
            self._trouble = error.message

    def _drawn(self) -> RenderableType:
        if self._sample is None:
            return Text(self._trouble or "…")
        frame = self._view.frame(self._sample, self._console.width, self._console.height)
        return output.stacked(output.styled(f"! {self._trouble}", "bold red"), frame) if self._trouble else frame

    # --- keys ----------------------------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """Do what a key stands for; False to quit."""
        view = self._view
        if key == "interrupt":
            return False
        if view.typing:
            self._type(key)
        elif key == "q":
            return False
        elif key == "p":
            view.paused = not view.paused
        elif key == "s":
            view.sort = SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]
        elif key == "/":
            view.typing, view.filter = True, ""
        elif key in ("up", "k", "down", "j"):
            view.place = max(0, view.place + (1 if key in ("down", "j") else -1))
        elif key == "enter":
            self._open()
        elif key in ("escape", "backspace"):
            view.opened = None
        return True

    def _type(self, key: str) -> None:
        view = self._view
        if key in ("enter", "escape"):
            view.typing = False
            view.filter = "" if key == "escape" else view.filter
        elif key == "backspace":
            view.filter = view.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            view.filter += key

    def _open(self) -> None:
        lines = self._view.chosen(self._sample) if self._sample is not None else []
        if lines and self._view.opened is None:
            chosen = lines[min(self._view.place, len(lines) - 1)].stats
            self._view.opened = (chosen.stream, chosen.group)
