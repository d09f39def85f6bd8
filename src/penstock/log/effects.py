"""Apply the effects of a settlement: state, the user's SQL and emitted events, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.core import codec, fingerprint
from penstock.core.event import NewEvent
from penstock.core.group import Group
from penstock.core.lease import Effects, Failure, Settlement
from penstock.core.user_sql import UserSqlError
from penstock.errors import EffectFailed, UnattributedEffect
from penstock.log import keyed_state
from penstock.stores.base import Transaction


@dataclass(slots=True)
class Applied:
    """The effects of a settlement as they are applied: state first, then the user's SQL, in offset order.

    Emitted events are only collected, because they are appended last.
    """

    tx: Transaction
    group: Group
    now: datetime
    emit: Callable[[Any], NewEvent]
    keys: Mapping[int, str | None]
    emitted: list[NewEvent] = field(default_factory=list)
    culprits: dict[int, Failure] = field(default_factory=dict)
    dependents: set[int] = field(default_factory=set)

    def apply(self, said: Settlement, *, without: Set[int], careful: bool) -> None:
        """Apply everything at once, or, with `careful`, event by event so that only the event that caused it fails.

        `without` are the events that do not succeed; neither do those above the finished part.
        """
        versions = dict(said.versions)
        self._one(said.effects, versions)
        events = sorted(said.event_effects.items())
        if without or said.upto is not None:
            events = [(offset, one) for offset, one in events if _succeeded(offset, one, without, said.upto)]
        if careful:
            self._one_by_one(events, versions)
            if self.culprits and said.effects:
                raise UnattributedEffect
        else:
            self._all(events, versions)

    def _all(self, events: Sequence[tuple[int, Effects]], versions: dict[tuple[str, str], int]) -> None:
        """Write the last value of each state, then run the statements in offset order."""
        state: dict[str, dict[str, Any]] = {}
        for _, effects in events:
            for key, values in effects.state.items():
                state.setdefault(key, {}).update(values)
        if state:
            keyed_state.write(self.tx, self.group.group_id, state, versions, self.now)
        for _, effects in events:
            for sql, params in effects.execute:
                self.tx.user_sql(sql, params)
            self.emitted.extend(self.emit(event) for event in effects.emit)
        if any(effects.execute for _, effects in events):
            self.tx.check_user_sql_so_far()

    def _one_by_one(self, events: Sequence[tuple[int, Effects]], versions: dict[tuple[str, str], int]) -> None:
        """Use a savepoint per event. Later events of a failed key may depend on it, so they are released."""
        closed: set[str] = set()
        for offset, effects in events:
            key = self.keys[offset]
            if key in closed:
                self.dependents.add(offset)
                continue
            kept, before = len(self.emitted), dict(versions)
            try:
                with self.tx.savepoint():
                    self._one(effects, versions)
            except UserSqlError as error:
                del self.emitted[kept:]
                versions.clear()
                versions.update(before)
                self.culprits[offset] = fingerprint.of_text("effect_failed", codec.error_text(error))
                if key is not None:
                    closed.add(key)

    def _one(self, effects: Effects, versions: dict[tuple[str, str], int]) -> None:
        if effects.state:
            versions.update(keyed_state.write(self.tx, self.group.group_id, effects.state, versions, self.now))
        for sql, params in effects.execute:
            self.tx.user_sql(sql, params)
        if effects.execute:
            self.tx.check_user_sql_so_far()
        self.emitted.extend(self.emit(event) for event in effects.emit)


def _succeeded(offset: int, effects: Effects, without: Set[int], upto: int | None) -> bool:
    """Return whether the event of these effects succeeds; raise if they belong to several and only some succeed."""
    if not effects.writers:
        return offset not in without and (upto is None or offset <= upto)
    writers = effects.writers
    lost = [one for one in writers if one in without or (upto is not None and one > upto)]
    if lost and len(lost) < len(writers):
        raise UnattributedEffect(f"Events {list(writers)[:10]} wrote state together, and {lost[0]} is released.")
    return not lost


def effect_error(error: UserSqlError) -> EffectFailed:
    """Make the error for a failed statement that belongs to no single event."""
    return EffectFailed(f"A statement of the settle failed: {error}")
