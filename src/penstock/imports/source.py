"""The contract of a source, and how its words for states become ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.core.delivery import State
from penstock.core.imported import Found, Target
from penstock.errors import InvalidInput, InvalidSource

if TYPE_CHECKING:
    from penstock.imports.pspf_state import StateFile

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

    @property
    def state(self) -> StateFile | None:
        """Keyed state for the first of the targets."""

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
