"""Events of other systems, as an import takes them over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from penstock.core.delivery import State
from penstock.core.event import NewEvent
from penstock.core.group import GroupSettings, Position

FROM = "penstock-import"  # in the metadata: what the source knew of an event, and an event has no field for


class Was(NamedTuple):
    """The state of a delivery in the system that it comes from."""

    state: State
    attempts: int = 0
    error: str | None = None
    available_at: datetime | None = None  # when it is due, if that is later than its event
    dead_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of a source: the fields of its event as `append` takes them, and its state for each group."""

    position: Any  # plain data; the source can be read on from behind it
    stream: str
    fields: Mapping[str, Any]
    states: Mapping[str, Was] = field(default_factory=dict)
    unfit: str | None = None  # why it cannot be an event, if the source knows that


class Taken(NamedTuple):
    """An event that an import stores, with its states by group."""

    event: NewEvent
    states: Mapping[str, Was]


class Target(NamedTuple):
    """A group that an import makes."""

    stream: str
    group: str
    start: Position
    settings: GroupSettings
