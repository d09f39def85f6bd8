"""The contract of a source, and how its texts become the fields of an event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import orjson

from penstock.core.codec import BINARY, JSON
from penstock.core.delivery import State
from penstock.core.event import GIVEN_ID, event_id, parse_event_id
from penstock.core.imported import FROM, Found, Target
from penstock.core.limits import PAYLOAD_BYTES
from penstock.errors import InvalidInput, InvalidSource

TEXT = "text/plain"
Words = Mapping[str, State]  # the states of a source, in lower case, in our words


class GroupCount(NamedTuple):
    """How many deliveries of a group a source has in each state, in our words."""

    stream: str
    group: str
    states: Mapping[State, int]


class Closable(Protocol):
    """What holds a connection."""

    def close(self) -> None:
        """Disconnect."""


class Source(Closable, Protocol):
    """A system to import from. Nothing in it is changed."""

    system: str
    name: str  # which one, without credentials: the same name is the same import
    options: dict[str, Any]  # what it was told of the source; an import is not continued with others
    targets: list[Target]
    resumes: bool  # whether it can be read from a position; otherwise ids alone say what is known
    stop_first: str  # what must not run meanwhile
    notes: dict[str, Any]  # for the audit

    def count(self) -> list[GroupCount]:
        """Count what there is. `InvalidSource` for states that nobody has named."""

    def read(self, after: Any) -> Iterator[Found]:
        """Yield entries in the source's order, from behind a position; None is the beginning."""


@contextmanager
def kept_open(resource: Closable) -> Iterator[None]:
    """Disconnect if what follows finds that the source cannot be used."""
    try:
        yield
    except BaseException:
        resource.close()
        raise


def state_of(word: str | None, words: Words) -> State | None:
    """Return our word for a state of the source; None if it is unknown."""
    return words.get("null" if word is None else word.lower())


def counted(found: Mapping[str | None, int], words: Words, where: str) -> dict[State, int]:
    """Return counts in our words; `InvalidSource` names the states that are not known, and how many have them."""
    unknown = {word: count for word, count in found.items() if state_of(word, words) is None}
    if unknown:
        listed = ", ".join(f"{'null' if word is None else word!r} ({count:,})" for word, count in sorted_texts(unknown))
        raise InvalidSource(f"{where} has states that nobody has named: {listed}. Name them: --state theirs=PUBLISHED.")
    states: dict[State, int] = {}
    for word, count in found.items():
        state = words["null" if word is None else word.lower()]
        states[state] = states.get(state, 0) + count
    return states


def sorted_texts(found: Mapping[str | None, int]) -> list[tuple[str | None, int]]:
    """Return counts by word, the most frequent first."""
    return sorted(found.items(), key=lambda pair: (-pair[1], str(pair[0])))


def known_words(*texts: tuple[State, str], more: Mapping[str, str] | None = None) -> dict[str, State]:
    """Return the words of a system, and those that the user has named (`theirs=OURS`)."""
    words = {word: state for state, listed in texts for word in listed.split()}
    for theirs, ours in (more or {}).items():
        try:
            words[theirs.lower()] = State(ours.upper())
        except ValueError as error:
            raise InvalidInput(f"--state {theirs}={ours}: {ours!r} is none of {', '.join(State)}.") from error
    return words


# --- fields -----------------------------------------------------------------------------------------------------------


def identity(source: str, given: str | None, position: str) -> tuple[Any, dict[str, Any]]:
    """Return the id of an event, and what its metadata say of it: a stable one is made where none can be kept."""
    if given is None:
        return event_id(f"{source} {position}"), {}
    try:
        parse_event_id(given)
    except InvalidInput:
        return event_id(f"{source} id {given}"), {GIVEN_ID: given}
    return given, {}


def body(payload: str | bytes | None, content_type: str | None = None) -> tuple[bytes | None, str]:
    """Return a payload byte for byte, and its content type: JSON if it is, else text or bytes."""
    if payload is None:
        return None, JSON
    raw = payload.encode("utf-8", "surrogateescape") if isinstance(payload, str) else bytes(payload)
    if content_type:
        return raw, content_type
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw, TEXT if isinstance(payload, str) else BINARY
    return raw, JSON


def json_object(text: str | None, what: str) -> tuple[dict[str, Any], str | None]:
    """Return a JSON object, or why it is none."""
    if text is None or text == "":
        return {}, None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return {}, f"{what} are not JSON: {error}."
    if found is None:
        return {}, None
    return (found, None) if isinstance(found, dict) else ({}, f"{what} are not a JSON object.")


def oversize(size: int | None) -> str | None:
    """Return why a payload of so many bytes cannot be stored, if it cannot."""
    if size is None or size <= PAYLOAD_BYTES:
        return None
    return f"The payload has {size:,} bytes; the limit is {PAYLOAD_BYTES:,}."


def origin(created_at: datetime | str | None, **more: Any) -> dict[str, Any]:
    """Return what an event's metadata keep of its life in the source."""
    at = created_at.isoformat() if isinstance(created_at, datetime) else created_at
    known = {name: value for name, value in {"created_at": at, **more}.items() if value is not None}
    return {FROM: known} if known else {}
