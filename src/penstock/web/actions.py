"""Actions: one dialog for all of them. Dry run, cutoff, reason, above 1,000 the typed name; then POST and redirect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from penstock.core.access import OPERATE
from penstock.core.event import check_name
from penstock.errors import InvalidInput
from penstock.web.view import View, moment_of

TYPED_ABOVE: Final = 1_000  # deliveries: whoever moves more types the name of the group
_REASON_LENGTH: Final = 500


@dataclass(frozen=True, slots=True)
class Field:
    """An input of the dialog. Kinds: text, number, area, select (with options), hidden."""

    name: str
    label: str
    kind: str = "text"
    required: bool = False
    value: str = ""
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What an action would do: the result of its dry run."""

    sentence: str
    count: int | None = None
    cutoff: datetime | None = None  # later arrivals are not included
    lines: tuple[str, ...] = ()
    possible: bool = True  # else the button that does it is missing
    warn: bool = False
    proof: str = ""  # comes back with the start, so that what is started is what was shown


@dataclass(frozen=True, slots=True)
class Done:
    """What was done, for the page that is shown next."""

    count: int | None = None
    to: tuple[str, ...] | None = None  # parts of the address to go to; else where the dialog was opened


@dataclass(frozen=True, slots=True)
class Action:
    """Something that changes the log. `plan` must only look; `run` does it, and the log writes the audit."""

    name: str
    title: str
    verb: str  # on the button
    done: str  # the sentence on the next page; {n} is the count
    plan: Callable[[Ask], Plan]
    run: Callable[[Ask], Done]
    scope: str = OPERATE
    fields: tuple[Field, ...] = ()
    reason: str = "required"  # or optional, or none
    of: str = "group"  # group, stream, or log: what it is done to
    danger: bool = False
    rights: Callable[[Ask], None] | None = None  # raises `Forbidden`; in the place of `scope` for what `of` names
    fill: Callable[[Ask], Mapping[str, str]] | None = None  # what the fields hold when the dialog is opened


@dataclass(frozen=True)
class Ask:
    """An action as somebody asks for it."""

    view: View
    action: Action
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def stream(self) -> str:
        """The stream that it is about."""
        return check_name(self.values.get("stream", ""), "stream")

    @property
    def group(self) -> str:
        """The group that it is about."""
        return check_name(self.values.get("group", ""), "group")

    @property
    def by(self) -> str:
        """Who asks, for the audit."""
        return self.view.access.name

    @property
    def reason(self) -> str | None:
        """Why, for the audit."""
        return self.values.get("reason", "").strip()[:_REASON_LENGTH] or None

    @property
    def cutoff(self) -> datetime | None:
        """The moment of the dry run that was shown."""
        return moment_of(self.values.get("cutoff", ""), "cutoff")

    @property
    def subject(self) -> str:
        """What it is done to, in words."""
        return {"group": lambda: f"{self.stream}/{self.group}", "stream": lambda: self.stream}.get(
            self.action.of, lambda: "the log"
        )()

    def text(self, name: str) -> str:
        """Return what was put into a field."""
        return self.values.get(name, "").strip()

    def whole(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number that was put into a field."""
        sent = self.text(name)
        if not sent:
            return default
        if not (sent.isascii() and sent.isdecimal()) or len(sent) > 18:
            raise InvalidInput(f"{name} is a whole number, not {sent[:60]!r}.")
        return int(sent)

    def check_rights(self) -> None:
        """`Forbidden` unless whoever asks may do it."""
        if self.action.rights is not None:
            self.action.rights(self)
            return
        self.view.require(self.action.scope, None if self.action.of == "log" else self.stream)

    @property
    def complete(self) -> bool:
        """Whether every field that is needed was filled in, so that a dry run makes sense."""
        return all(self.text(one.name) for one in self.action.fields if one.required)

    def check(self, plan: Plan) -> None:
        """`InvalidInput` unless what the dialog asks for was given."""
        if not plan.possible:
            raise InvalidInput(plan.sentence)
        if self.action.reason == "required" and self.reason is None:
            raise InvalidInput("Say why: the reason goes into the audit.")
        if needs_typing(plan) and self.text("typed") != self.values.get("group", ""):
            raise InvalidInput(f"Type the name of the group to confirm: {self.values.get('group', '')!r}.")


def needs_typing(plan: Plan | None) -> bool:
    """Return whether the name of the group is to be typed."""
    return plan is not None and plan.count is not None and plan.count > TYPED_ABOVE


def joined(values: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return fields by name; of those that were sent several times, as boxes that are ticked, all with commas between.

    >>> joined([("kind", "a"), ("group", "fraud"), ("kind", "b")])
    {'kind': 'a,b', 'group': 'fraud'}
    """
    found: dict[str, str] = {}
    for name, value in values:
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def asked(view: View, action: Action, values: Mapping[str, Any], *, fresh: bool = False) -> Ask:
    """Make a request for an action out of the fields that were sent. A `fresh` one has defaults where none was."""
    defaults = {one.name: one.value for one in action.fields if fresh and one.value}
    sent = {name: str(value) for name, value in values.items() if value not in (None, "")}
    return Ask(view, action, defaults | sent)
