"""The scoreboard's numbers: three statements in one snapshot, asked twice a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from penstock.cli.demo.chaos.shop import GROUPS
from penstock.cli.demo.database import Database, connect
from penstock.log.log import Log

_EVERY_SECONDS: Final = 0.5
_KEPT: Final = 240  # samples
_TOTALS = """
    select (select count(*) from chaos_orders where stream = ?),
           (select count(*) from penstock.events where stream = ?),
           (select count(*) from penstock.leases join penstock.groups using (group_id)
             where stream = ? and outcome = 'expired')
    """
_STATES = "select group_name, state, count(*) from penstock.delivery where stream = ? group by group_name, state"
_EFFECTS = """select group_name, count(*), count(distinct order_id) from chaos_effects where stream = ?
               group by group_name"""


@dataclass(frozen=True, slots=True)
class GroupScore:
    """How far a group is, and what it has done."""

    pending: int = 0
    claimed: int = 0
    published: int = 0
    dead: int = 0
    effects: int = 0
    distinct: int = 0  # orders with an effect

    @property
    def unfinished(self) -> int:
        return self.pending + self.claimed


@dataclass(frozen=True, slots=True)
class Score:
    """What the database said at one moment."""

    at: float = 0.0
    orders: int = 0
    events: int = 0
    taken_back: int = 0  # leases that expired
    groups: dict[str, GroupScore] = field(default_factory=lambda: {name: GroupScore() for name in GROUPS})

    def sum(self, name: str) -> int:
        return sum(int(getattr(one, name)) for one in self.groups.values())

    @property
    def doubled(self) -> int:
        """Effects that happened again."""
        return self.sum("effects") - self.sum("distinct")

    @property
    def lost(self) -> int:
        """Orders without an event, and deliveries that are PUBLISHED and have no effect."""
        missing = sum(max(0, one.published - one.distinct) for one in self.groups.values())
        return missing + max(0, self.orders - self.events)

    @property
    def busy(self) -> bool:
        """Whether every group has done something."""
        return all(one.published > 0 for one in self.groups.values())

    @property
    def drained(self) -> bool:
        """Whether everybody is done with everything."""
        finished = [one.published + one.dead for one in self.groups.values()]
        return self.orders > 0 and all(count == self.events for count in finished)


def look(database: Database, stream: str) -> Score:
    """Ask once, in one snapshot."""
    database.execute(database.snapshot)
    try:
        orders, events, taken_back = database.execute(_TOTALS, (stream, stream, stream)).fetchone()
        states = database.execute(_STATES, (stream,)).fetchall()
        effects = database.execute(_EFFECTS, (stream,)).fetchall()
    finally:
        with suppress(Exception):  # the connection may be gone; what went wrong is being raised
            database.execute("rollback")
    groups = _groups(states, effects)
    return Score(time.monotonic(), orders, events, taken_back, groups)


def _groups(states: Iterable[tuple[str, str, int]], effects: Iterable[tuple[str, int, int]]) -> dict[str, GroupScore]:
    found: dict[str, dict[str, int]] = {name: {} for name in GROUPS}
    for group, state, count in states:
        found[group][state.lower()] = count
    for group, count, distinct in effects:
        found[group] |= {"effects": count, "distinct": distinct}
    return {name: GroupScore(**counts) for name, counts in found.items()}


class Scores:
    """A thread that looks; while the database is away, what was seen last stays."""

    def __init__(self, log: Log, stream: str) -> None:
        self._log, self._stream = log, stream
        self.seen: list[Score] = [Score(time.monotonic())]
        self.up = True
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-demo-scores", daemon=True)

    @property
    def last(self) -> Score:
        return self.seen[-1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(Exception), connect(self._log, ()) as database:  # killed: it is shown as down
                while not self._ended.wait(_EVERY_SECONDS):
                    score = look(database, self._stream)
                    self.up, self.seen = True, [*self.seen[-_KEPT:], score]
            self.up = False
            self._ended.wait(0.2)
