"""Routing: the topic, key and headers of a message, by rule or by a function of the event."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.core import trace
from penstock.core.batch import Event
from penstock.core.binding import check_patterns, matches
from penstock.declare.publisher import Headers
from penstock.errors import InvalidPublisher

Topic = Callable[[Event], str | None]
Key = Callable[[Event], str | None]
More = Callable[[Event], Headers]

_FIELDS = ("stream", "type", "ordering_key", "partition_key")


def topic_of(rule: Any, default: str | None) -> Topic | str | None:
    """Return the topic, or a function that tells it; None from the function skips the event.

    A rule is a name, perhaps with `{stream}`, `{type}`, `{ordering_key}` or `{partition_key}` in it, a mapping of type
    patterns to such names (the first that matches), or a function of the event. Without one: the event's stream.
    """
    rule = default if rule is None else rule
    if rule is None:
        return None
    if callable(rule):
        return _checked_topic(rule)
    if isinstance(rule, Mapping):
        named = [(check_patterns([pattern]) or (), _template(name)) for pattern, name in rule.items()]
        return lambda event: next((name(event) for types, name in named if _wants(types, event)), None)
    if not isinstance(rule, str) or not rule:
        raise InvalidPublisher(f"topic is a name, a mapping of types to names or a function, not {rule!r}.")
    return _template(rule) if "{" in rule else rule


def key_of(rule: Any) -> Key | None:
    """Return a function that tells the key; None stands for the partition key, else the ordering key."""
    if rule is None:
        return None
    if callable(rule):
        return _checked_key(rule)
    if isinstance(rule, str) and rule in (*_FIELDS, "event_id"):
        name = {"type": "event_type", "event_id": "given_id"}.get(rule, rule)
        return lambda event: getattr(event, name)
    raise InvalidPublisher(f"key is one of {', '.join((*_FIELDS, 'event_id'))} or a function, not {rule!r}.")


def headers_of(rule: Any) -> More | None:
    """Return a function that tells what is added to the event's own headers."""
    if rule is None:
        return None
    if callable(rule):
        return lambda event: _pairs(rule(event))
    if isinstance(rule, Mapping):
        fixed = _pairs(rule)
        return lambda event: fixed
    raise InvalidPublisher(f"headers is a mapping or a function, not {rule!r}.")


def own_headers(event: Event) -> Headers:
    """Return the headers of the event as they are, and its trace context, if the producer sent none."""
    if not event.has_notes:  # the common case
        return ()
    headers = event.header_pairs
    if not event.has_metadata:
        return headers
    return [*headers, *trace.as_headers(event.metadata, (name for name, _ in headers))]


def _template(text: Any) -> Callable[[Event], str]:
    if not isinstance(text, str) or not text:
        raise InvalidPublisher(f"A topic is a name, not {text!r}.")
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise InvalidPublisher(f"The topic {text!r} cannot be read: {error}.") from error
    if odd := [name for name in names if name not in _FIELDS]:
        raise InvalidPublisher(f"A topic may contain {', '.join(_FIELDS)} in braces, not {odd[0]!r}.")
    if not names:
        return lambda event: text
    return lambda event: text.format(
        stream=event.stream,
        type=event.event_type,
        ordering_key=event.ordering_key or "",
        partition_key=event.partition_key or "",
    )


def _wants(types: tuple[str, ...], event: Event) -> bool:
    return matches(types, None, event.event_type, None)


def _checked_topic(rule: Callable[[Event], Any]) -> Topic:
    def topic(event: Event) -> str | None:
        found = rule(event)
        if found is not None and (not isinstance(found, str) or not found):
            raise InvalidPublisher(f"The function of the topic returned {found!r}: return a name, or None to skip.")
        return found

    return topic


def _checked_key(rule: Callable[[Event], Any]) -> Key:
    def key(event: Event) -> str | None:
        found = rule(event)
        if found is not None and not isinstance(found, str):
            raise InvalidPublisher(f"The function of the key returned {found!r}: return text or None.")
        return found

    return key


def _pairs(given: Any) -> Headers:
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else given or ()
    made: list[tuple[str, str | bytes]] = []
    for pair in pairs:
        name, value = pair
        if not isinstance(name, str) or not name or "\0" in name or not isinstance(value, str | bytes):
            raise InvalidPublisher(f"Headers map names to text or bytes; {name!r} does not.")
        if name.lower().startswith("penstock-"):
            raise InvalidPublisher(f"Headers that begin with penstock- are set by Penstock; {name!r:.80} cannot be.")
        made.append((name, value))
    return made
