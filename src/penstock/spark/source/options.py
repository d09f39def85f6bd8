"""The options of `spark.read` and `df.write`, checked before anything is opened."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock.core.delivery import State
from penstock.core.event import check_name, check_time
from penstock.core.job import check_not_jobs
from penstock.errors import InvalidOption, MissingField
from penstock.spark.source.filters import Wanted

READ: Final = (
    "url",
    "stream",
    "what",
    "group",
    "columns",
    "partitions",
    "after",
    "upto",
    "since",
    "until",
    "types",
    "state",
    "pushdown",
    "archive",
)
READ_STREAM: Final = (
    "url",
    "stream",
    "group",
    "columns",
    "maxRowsPerTrigger",
    "startingPosition",
    "partitions",
    "onClaimLost",
    "run",
)
WRITE: Final = ("url", "stream", "type", "ordering_key", "batch_id")
WRITE_STREAM: Final = ("url", "stream", "type", "ordering_key", "checkpointLocation")
KINDS: Final = ("events", "deliveries", "dead", "attempts")
_OF_SPARK: Final = frozenset({"path", "queryname"})  # added by Spark itself


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a batch read."""

    url: str
    stream: str
    what: str
    group: str | None
    partitions: int | None
    wanted: Wanted
    pushdown: bool
    archive: bool  # whether events that are only in an archive are read, too


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write, batch or streaming."""

    url: str
    stream: str
    type: str | None
    ordering_key: str | None  # the name of its column
    batch_id: str | None


def check_known(options: Mapping[str, str], known: Iterable[str], verb: str) -> None:
    """Raise `InvalidOption` for an unknown name: a typo must not change what is read or written."""
    names = {name.lower(): name for name in known}
    for given in sorted(options):
        if given.lower() in names or given.lower() in _OF_SPARK:
            continue
        near = difflib.get_close_matches(given.lower(), names, n=1)
        guess = f" Do you mean {names[near[0]]!r}?" if near else ""
        raise InvalidOption(f"{verb} has no option {given!r}.{guess} It has {', '.join(names.values())}.")


def kind_of(options: Mapping[str, str]) -> str:
    """Return what to read: one of `KINDS`."""
    what = options.get("what", "events")
    if what not in KINDS:
        raise InvalidOption(f"The option 'what' is one of {', '.join(KINDS)}, not {what!r}.")
    return what


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a batch read; Spark passes text, with names in any case."""
    check_known(options, READ, "spark.read")
    what = kind_of(options)
    group = options.get("group")
    if group is not None and what == "events":
        raise InvalidOption("Events belong to no group: read what=deliveries, or leave the option 'group' out.")
    partitions = _number(options, "partitions")
    if partitions == 0:
        raise InvalidOption("The option 'partitions' must be at least 1.")
    states = _names(options, "state")
    if states is not None and what != "deliveries":
        raise InvalidOption("Only deliveries have a state: the option 'state' goes with what=deliveries.")
    for state in states or ():
        if state not in list(State):
            raise InvalidOption(f"A state is one of {', '.join(State)}, not {state!r}.")
    since, until = _time(options, "since"), _time(options, "until")
    if (since or until) and what in ("deliveries", "attempts"):
        raise InvalidOption("The options 'since' and 'until' go with what=events and what=dead.")
    return ReadOptions(
        _url(options),
        _stream(options, "spark.read"),
        what,
        None if group is None else check_name(group, "group"),
        partitions,
        Wanted(
            _number(options, "after") or 0, _number(options, "upto"), _names(options, "types"), states, since, until
        ),
        _flag(options, "pushdown"),
        what == "events" and _archive(options),
    )


def parse_write(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse the options of a write."""
    verb, known = ("writeStream", WRITE_STREAM) if streaming else ("df.write", WRITE)
    check_known(options, known, verb)
    kind = options.get("type")
    return WriteOptions(
        _url(options),
        check_not_jobs(_stream(options, verb)),
        None if kind is None else check_name(kind, "type"),
        options.get("ordering_key"),
        options.get("batch_id"),
    )


def listed(text: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _url(options: Mapping[str, str]) -> str:
    url = options.get("url") or os.environ.get("PENSTOCK_URL")
    if not url:
        raise MissingField("The option 'url' is missing, and PENSTOCK_URL is not set in the environment of Spark.")
    return url


def _stream(options: Mapping[str, str], verb: str) -> str:
    if not options.get("stream"):
        raise MissingField(f"{verb} needs the option 'stream'.")
    return check_name(options["stream"], "stream")


def _names(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    return listed(options[name]) if name in options else None


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        raise InvalidOption(f"The option {name!r} is a whole number of at least 0, not {text!r}.")
    return int(text)


def _time(options: Mapping[str, str], name: str) -> datetime | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        return check_time(datetime.fromisoformat(text), f"The option {name!r}")
    except ValueError as error:
        raise InvalidOption(f"The option {name!r} is an ISO time like 2026-07-01T12:00Z, not {text!r}.") from error


def _archive(options: Mapping[str, str]) -> bool:
    text = options.get("archive", "yes").lower()
    if text not in ("yes", "no"):
        raise InvalidOption(f"The option 'archive' is yes or no, not {options['archive']!r}.")
    return text == "yes"


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"The option {name!r} is true or false, not {options[name]!r}.")
    return text == "true"
