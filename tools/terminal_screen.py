"""A small terminal: the screen that a program leaves behind, cell by cell. It knows what rich sends."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

_SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>78]|\x1b\([AB0]")


@dataclass(frozen=True, slots=True)
class Look:
    """How a cell is written: a colour of the palette or "#rrggbb", or None for the default."""

    colour: str | None = None
    bold: bool = False
    dim: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    text: str = " "
    look: Look = Look()


Row = tuple[Cell, ...]


class Screen:
    """Feed it what a program printed; `rows` is what stands there now."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._rows = [self._blank() for _ in range(lines)]
        self._x = self._y = 0
        self._look = Look()
        self._rest = ""  # the beginning of a sequence whose end has not come yet

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(tuple(row) for row in self._rows)

    def text(self) -> list[str]:
        return ["".join(cell.text for cell in row).rstrip() for row in self._rows]

    def feed(self, printed: str) -> None:
        text, at = self._rest + printed, 0
        self._rest = ""
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
            elif found := _SEQUENCE.match(text, at):
                if found[2]:
                    self._control(found[1], found[2])
                at = found.end()
            elif len(text) - at < 64:
                self._rest = text[at:]
                return
            else:
                at += 1

    def _blank(self) -> list[Cell]:
        return [Cell()] * self.columns

    def _put(self, character: str) -> None:
        if character == "\n":
            self._down()
        elif character == "\r":
            self._x = 0
        elif character == "\b":
            self._x = max(0, self._x - 1)
        elif character == "\t":
            self._x = min(self.columns - 1, self._x // 8 * 8 + 8)
        elif character.isprintable() and not unicodedata.combining(character):
            if self._x >= self.columns:
                self._x = 0
                self._down()
            self._rows[self._y][self._x] = Cell(character, self._look)
            self._x += 1

    def _down(self) -> None:
        if self._y + 1 < self.lines:
            self._y += 1
        else:
            self._rows = [*self._rows[1:], self._blank()]

    def _control(self, given: str, letter: str) -> None:
        numbers = [int(one) for one in given.split(";") if one.isdigit()]
        count = numbers[0] if numbers else 0
        if letter == "m":
            self._change_look(numbers or [0])
        elif letter in "AB":
            step = max(1, count) * (-1 if letter == "A" else 1)
            self._y = min(self.lines - 1, max(0, self._y + step))
        elif letter in "CD":
            step = max(1, count) * (-1 if letter == "D" else 1)
            self._x = min(self.columns - 1, max(0, self._x + step))
        elif letter == "G":
            self._x = max(0, count - 1)
        elif letter == "H":
            self._y = min(self.lines - 1, max(0, (numbers[0] if numbers else 1) - 1))
            self._x = max(0, (numbers[1] if len(numbers) > 1 else 1) - 1)
        elif letter == "K":
            first, last = {0: (self._x, self.columns), 1: (0, self._x + 1)}.get(count, (0, self.columns))
            self._rows[self._y][first:last] = [Cell()] * (last - first)
        elif letter == "J":
            first = self._y if count == 0 else 0
            for line in range(first, self.lines):
                self._rows[line] = self._blank()

    def _change_look(self, numbers: list[int]) -> None:
        left = iter(numbers)
        for number in left:
            if number == 0:
                self._look = Look()
            elif number in (1, 2, 22):
                self._look = replace(self._look, bold=number == 1, dim=number == 2)
            elif number == 39:
                self._look = replace(self._look, colour=None)
            elif 30 <= number <= 37 or 90 <= number <= 97:
                self._look = replace(self._look, colour=str(number))
            elif number == 38:
                kind = next(left, 0)
                values = [next(left, 0) for _ in range(3 if kind == 2 else 1)]
                colour = "#{:02x}{:02x}{:02x}".format(*values) if kind == 2 else _of_256(values[0])
                self._look = replace(self._look, colour=colour)


def _of_256(number: int) -> str:
    """A colour of the cube and of the greys; the first sixteen are those of the palette."""
    if number < 8:
        return str(30 + number)
    if number < 16:
        return str(82 + number)
    if number >= 232:
        return "#{0:02x}{0:02x}{0:02x}".format(8 + 10 * (number - 232))
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return f"#{steps[number // 36]:02x}{steps[number // 6 % 6]:02x}{steps[number % 6]:02x}"
