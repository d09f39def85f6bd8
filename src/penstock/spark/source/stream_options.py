"""The options of `readStream`, checked before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.core.event import check_name, check_time
from penstock.core.group import Position
from penstock.errors import InvalidOption, MissingField
from penstock.spark.source.options import READ_STREAM, check_known


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a streaming read."""

    url: str
    stream: str
    group: str
    max_rows: int
    start: Position
    partitions: int | None  # None: by size
    skip_lost: bool
    run: int | None  # that the leases belong to, and whose orders the reader follows


def parse(options: Mapping[str, str]) -> StreamOptions:
    """Parse the options; Spark passes text, with names in any case."""
    check_known(options, READ_STREAM, "readStream")
    given = {name.lower(): value for name, value in options.items()}
    for name in ("stream", "group"):
        if not given.get(name):
            raise MissingField(f"readStream needs the option {name!r}.")
    url = given.get("url") or os.environ.get("PENSTOCK_URL")
    if not url:
        raise MissingField("readStream needs the option 'url', or PENSTOCK_URL in the environment of Spark.")
    on_lost = given.get("onclaimlost", "fail")
    if on_lost not in ("fail", "skip"):
        raise InvalidOption(f'onClaimLost is "fail" or "skip", not {on_lost!r}.')
    return StreamOptions(
        url,
        check_name(given["stream"], "stream"),
        check_name(given["group"], "group"),
        _number(given.get("maxrowspertrigger", "200000"), "maxRowsPerTrigger"),
        position(given.get("startingposition", "beginning")),
        _number(given["partitions"], "partitions") if "partitions" in given else None,
        on_lost == "skip",
        _number(given["run"], "run") if "run" in given else None,
    )


def position(text: str) -> Position:
    """Parse where a new group starts: beginning, end, an offset or a time."""
    if text in ("beginning", "end"):
        return text
    if text.isascii() and text.isdigit() and int(text) < 2**63:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidOption(f"startingPosition is beginning, end, an offset or an ISO time, not {text!r}.") from error
    checked = check_time(moment, "startingPosition")
    assert checked is not None
    return checked


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise InvalidOption(f"{what} must be a whole number of at least 1, not {text!r}.")
    return int(text)
