"""Did you mean …? Looked up only once something was not found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.session import Session
    from penstock.log.log import Log

KEY = "did_you_mean"  # in the details of an error


def suggest(error: PenstockError, session: Session, arguments: Mapping[str, Any]) -> None:
    """Note in the error which stream or group was meant, if one that exists is spelled alike."""
    stream, group = arguments.get("stream"), arguments.get("group") or arguments.get("name")
    if not isinstance(stream, str):
        return
    with suppress(Exception), session.open() as log:  # the error that is being reported matters more
        error.details[KEY] = stream_like(log, stream) or (_group_like(log, stream, group) if group else "")


def stream_like(log: Log, stream: str) -> str:
    """A question about a stream that does not exist; nothing about one that does."""
    known = {*log.streams(), *(one.stream for one in log.groups())}
    return "" if stream in known else question(stream, known, "the stream ")


def _group_like(log: Log, stream: str, group: str) -> str:
    everywhere = log.groups()
    here = {one.group_name for one in everywhere if one.stream == stream}
    if group in here:
        return ""
    elsewhere = sorted(one.stream for one in everywhere if one.group_name == group)
    return question(group, here, "the group ") or (f"{group!r} is a group of {elsewhere[0]!r}." if elsewhere else "")


def question(given: str, known: Iterable[str], what: str = "") -> str:
    """`Did you mean 'orders'?`, or nothing."""
    near = get_close_matches(given, sorted(known), n=3, cutoff=0.6)
    return f"Did you mean {what}{' or '.join(map(repr, near))}?" if near else ""
