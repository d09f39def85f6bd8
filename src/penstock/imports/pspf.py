"""PSPF's streams in Valkey: the entries of a topic, the states of one group, and its dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from penstock.core.delivery import State
from penstock.core.imported import Found, Target, Was
from penstock.errors import InvalidSource
from penstock.imports.fields import body, identity, moment, origin, oversize
from penstock.imports.pspf_state import StateFile
from penstock.imports.source import GroupCount, kept_open
from penstock.imports.valkey import FIRST, Id, ValkeyReader, parse_id, show_id, text_of

_DEAD, _LIVE = "dead", "live"  # the two streams, in the order in which they are read
_OWN = ("_error", "_original_stream", "_original_msg_id", "_moved_timestamp")  # that a dead letter adds
_DIGITS = 18  # of a counter; Python reads no number of any length


class Pspf:
    """The entries of a topic for one group: dead letters first, whose entries the topic may have lost or still have.

    A dead letter does not say which group gave it up. What the group still waits for is not dead for it.
    """

    system = "pspf"
    resumes = True
    stop_first = "all PSPF workers of this group, and its producers"

    def __init__(
        self,
        url: str,
        topic: str,
        group: str,
        target: Target,
        *,
        letters: bool = True,
        default_type: str | None = None,
        state: StateFile | None = None,
    ) -> None:
        self.targets = [target]
        self.options: dict[str, Any] = {"type": default_type, "letters": letters}
        self.notes: dict[str, Any] = {}
        self._target, self._topic, self._group, self._type = target, topic, group, default_type
        self._server = ValkeyReader(url)
        self._letters = f"{topic}-dlq" if letters else None
        self.state = state
        self._origin = f"{self._server.name} {topic}"
        self.name = f"{self._origin} for {target.group} on {target.stream}, from {group}"
        with kept_open(self._server):
            self._given = self._find_group()

    def _find_group(self) -> Id:
        """Return the last id that the group was given."""
        if self._server.kind(self._topic) != "stream":
            raise InvalidSource(f"There is no stream {self._topic!r} in {self._server.name}.")
        groups = self._server.groups(self._topic)
        if self._group not in groups:
            listed = ", ".join(sorted(groups)) or "none"
            raise InvalidSource(f"The stream {self._topic!r} has no group {self._group!r}; there are {listed}.")
        return groups[self._group]

    # --- counting -----------------------------------------------------------------------------------------------------

    def count(self) -> list[GroupCount]:
        """Count entries by their states. The streams are read once for this: nothing else tells them apart."""
        states: dict[State, int] = {}
        for found in self.read(None):
            for was in found.states.values():
                states[was.state] = states.get(was.state, 0) + 1
        gone = self._server.pending_count(self._topic, self._group) - states.get(State.CLAIMED, 0)
        self.notes["gone"] = max(0, gone)  # acknowledged by nobody, and no longer in the stream
        return [GroupCount(self._target.stream, self._target.group, states)]

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, after: Any) -> Iterator[Found]:
        """Yield dead letters, then the entries of the topic that are none."""
        which, text = after or (_DEAD, show_id(FIRST))
        dead: set[Id] = set()
        if self._letters is not None and self._server.kind(self._letters) == "stream":
            for found, entry in self._dead(self._letters):
                if entry is not None and entry in dead:
                    continue
                if entry is not None:
                    dead.add(entry)
                if which == _DEAD and parse_id(found.position[1]) > parse_id(text):
                    yield found
        yield from self._live(FIRST if which == _DEAD else parse_id(text), dead)

    def _dead(self, letters: str) -> Iterator[tuple[Found, Id | None]]:
        """Yield dead letters with the id that each had in the topic; the topic's own entry is preferred."""
        for page in self._server.entries(letters, FIRST):
            originals = [one for _, fields in page if (one := _original(fields)) is not None]
            kept = self._server.named(self._topic, originals)
            waiting = self._server.waiting(self._topic, self._group, originals)
            for entry, fields in page:
                one = _original(fields)
                if one is not None and (one > self._given or one in waiting):
                    continue
                error = fields.get(b"_error")
                words, died = None if error is None else text_of(error), _died(fields.get(b"_moved_timestamp"))
                whole = fields if one is None else kept.get(one, fields)
                was = Was(State.DEAD, error=words, dead_at=died)
                yield self._found([_DEAD, show_id(entry)], one or entry, whole, was), one

    def _live(self, after: Id, dead: set[Id]) -> Iterator[Found]:
        for page in self._server.entries(self._topic, after):
            if not page:
                continue
            pending = self._server.pending(self._topic, self._group, page[0][0], page[-1][0])
            retried = self._server.hash(f"pspf:retries:{self._group}:{self._topic}", [show_id(one) for one in pending])
            for entry, fields in page:
                if entry not in dead:
                    was = self._state(entry, pending, retried)
                    yield self._found([_LIVE, show_id(entry)], entry, fields, was)

    def _state(self, entry: Id, pending: Mapping[Id, int], retried: Mapping[str, str]) -> Was:
        if entry in pending:
            counted = retried.get(show_id(entry), "")
            is_number = counted.isdecimal() and len(counted) <= _DIGITS
            return Was(State.CLAIMED, int(counted) if is_number else max(0, pending[entry] - 1))
        return Was(State.PENDING if entry > self._given else State.PUBLISHED)

    # --- entries ------------------------------------------------------------------------------------------------------

    def _found(self, position: list[str], entry: Id, fields: Mapping[bytes, bytes], was: Was) -> Found:
        named = {text_of(name): value for name, value in fields.items() if text_of(name) not in _OWN}
        given = named.get("event_id")
        event_id, noted = identity(self._origin, None if given is None else text_of(given), show_id(entry))
        payload, content_type = _payload(named)
        event_type = named.get("event_type")
        made = {
            "payload": payload,
            "content_type": content_type,
            "type": text_of(event_type) if event_type else self._type or self._target.stream,
            "metadata": {**noted, **origin(moment(entry[0] / 1000), entry=show_id(entry))},
            "event_id": event_id,
            "ordering_key": text_of(named["key"]) if named.get("key") else None,
        }
        return Found(position, self._target.stream, made, {self._target.group: was}, oversize(len(payload)))

    def close(self) -> None:
        """Disconnect."""
        self._server.close()


def _original(fields: Mapping[bytes, bytes]) -> Id | None:
    """Return the id that a dead letter had in its topic."""
    try:
        return parse_id(text_of(fields[b"_original_msg_id"]))
    except (KeyError, ValueError):
        return None


def _died(text: bytes | None) -> datetime | None:
    try:
        return None if text is None else moment(float(text))
    except ValueError:
        return None


def _payload(fields: Mapping[str, bytes]) -> tuple[bytes, str]:
    """Return the field `payload` as it is, else all fields as one object, their values read as PSPF reads them."""
    if "payload" in fields:
        raw, content_type = body(fields["payload"])
        return raw or b"", content_type
    return orjson.dumps({name: _value(value) for name, value in fields.items()}), "application/json"


def _value(raw: bytes) -> Any:
    """Return JSON for what is JSON, else the text; bytes that are no text are escaped."""
    text = text_of(raw)
    try:
        found = json.loads(text, parse_constant=lambda _: text)
        orjson.dumps(found)
    except (ValueError, TypeError, RecursionError):
        return text
    return found
