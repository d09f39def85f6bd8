"""What goes wrong, when, and to whom: drawn from a seed, one thing after the other."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.cli.demo.chaos.arena import Arena
from penstock.cli.demo.chaos.crew import Crew, Member

_PAUSE_SECONDS: Final = (0.4, 1.6)  # between two troubles
_SHORT_SECONDS: Final = 12.0  # in less time they come faster, so that there is one of each kind
_FROZEN_SECONDS: Final = (1.0, 5.0)  # a lease lasts two
_DOWN_SECONDS: Final = (0.3, 1.2)
_KINDS: Final = {"kill": 4, "freeze": 3, "handler": 2, "cut": 3, "database": 1, "producer": 1}
LINES: Final = {  # what the scoreboard calls them
    "kill": "workers☠",
    "freeze": "frozen❄",
    "handler": "handlers☠",
    "producer": "producers☠",
    "cut": "cuts✂",
    "database": "database⚡",
}


class Happening(NamedTuple):
    """Something that was done, in words."""

    seconds: float
    sign: str
    words: str


class Trouble:
    """Troubles the crew and the database, one thing at a time, as often as its clock is looked at."""

    def __init__(self, arena: Arena, crew: Crew, seed: int, seconds: float) -> None:
        self._arena, self._crew = arena, crew
        self._chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.happened: list[Happening] = []
        self.database_down = False
        self._pause = tuple(min(one, one * seconds / _SHORT_SECONDS) for one in _PAUSE_SECONDS)
        self._began = self._next_at = time.monotonic()
        self._later: list[tuple[float, Callable[[], None]]] = []
        possible = {name: weight for name, weight in _KINDS.items() if self._is_possible(name)}
        self._weights = possible
        self._first = list(possible)  # everything at least once, if there is time
        self._chance.shuffle(self._first)

    def _is_possible(self, kind: str) -> bool:
        if kind == "database":
            return self._arena.can_kill
        return self._arena.can_cut if kind == "cut" else True

    def begin(self) -> None:
        """Everybody is at work: the clock starts."""
        self._began = time.monotonic()
        self._next_at = self._began + self._pause[0]

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        for due, do in [one for one in self._later if one[0] <= now]:
            self._later.remove((due, do))
            do()
        for one in self._crew.fill([*self._crew.workers, *self._crew.producers]):
            self._say("!", f"{one.name} ended and is started again: {one.last_words()}")
        if now >= self._next_at:
            self._next_at = now + self._chance.uniform(*self._pause)
            names, weights = zip(*self._weights.items(), strict=True)
            self._do(self._first.pop() if self._first else self._chance.choices(names, weights)[0])

    def end(self) -> None:
        """Undo what is still in effect: who is frozen goes on, and the database is up."""
        for _, do in self._later:
            do()
        self._later.clear()

    # --- what there is -------------------------------------------------------------------------------------------

    def _do(self, kind: str) -> None:
        if kind == "database":
            self._kill_database()
        elif kind == "cut":
            self._count("cut", "✂", f"all {self._arena.cut()} connections cut")
        elif kind == "producer":
            self._kill(self._chance.choice(self._crew.producers), "producer")
        else:
            self._trouble_worker(kind, self._chance.choice(self._crew.workers))

    def _trouble_worker(self, kind: str, one: Member) -> None:
        if kind == "kill":
            self._kill(one, "kill")
        elif kind == "handler":
            if one.kill_a_handler():
                self._count("handler", "☠", f"kill -9 a handler's process of {one.name}")
        elif not one.frozen:
            seconds = self._chance.uniform(*_FROZEN_SECONDS)
            one.freeze()
            self._later.append((time.monotonic() + seconds, one.thaw))
            self._count("freeze", "❄", f"SIGSTOP {one.name} for {seconds:.1f} s")

    def _kill(self, one: Member, kind: str) -> None:
        pid = one.pid
        one.kill()
        self._crew.fill([one])
        self._count(kind, "☠", f"kill -9 {one.name} (pid {pid})")

    def _kill_database(self) -> None:
        if self.database_down:
            return
        self._arena.kill()
        self.database_down = True
        self._later.append((time.monotonic() + self._chance.uniform(*_DOWN_SECONDS), self._revive))
        self._count("database", "⚡", "kill -9 PostgreSQL")

    def _revive(self) -> None:
        self._arena.revive()
        self.database_down = False
        self._say("♥", "PostgreSQL is back, and has recovered")

    def _count(self, kind: str, sign: str, words: str) -> None:
        self.counts[kind] += 1
        self._say(sign, words)

    def _say(self, sign: str, words: str) -> None:
        self.happened.append(Happening(time.monotonic() - self._began, sign, words))
