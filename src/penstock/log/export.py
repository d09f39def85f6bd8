"""Export: dead letters with their payloads and errors, one document each, to be mended by hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import orjson

from penstock.core.delivery import State
from penstock.log import deliveries
from penstock.log.deliveries import DeliveryRecord
from penstock.log.selection import Selection
from penstock.stores.base import Store

_PAGE: Final = 500
_FIELDS: Final = (
    "error_code error_type last_error fingerprint attempts failures dead_at created_at ordering_key partition_key "
    "headers metadata content_type"
)


def export(store: Store, stream: str, group: str, which: Selection) -> Iterator[dict[str, Any]]:
    """Return dead letters in offset order. Pages are read one by one: what dies meanwhile may be among them."""
    after = 0
    while page := deliveries.deliveries(store, stream, group, which, state=State.DEAD, after=after, limit=_PAGE):
        yield from map(document, page)
        after = page[-1].offset


def document(one: DeliveryRecord) -> dict[str, Any]:
    """Describe a dead letter: `event_id` and `payload` are what `mend` reads again."""
    names = {"stream": one.stream, "group": one.group, "event_id": str(one.event_id), "offset": one.offset}
    rest = {name: getattr(one, name) for name in _FIELDS.split()}
    return {**names, "type": one.event_type, "payload": payload_of(one.payload), **rest}


def payload_of(payload: bytes) -> Any:
    """Return JSON as it is, and everything else, or what not everybody can write or read, as `{"base64": …}`."""
    value = decoded(payload)
    if value is None or (isinstance(value, dict) and value.keys() == {"base64"}) or not _is_portable(value):
        return {"base64": base64.b64encode(payload).decode()}
    return value


def decoded(payload: bytes) -> Any:
    """Return JSON in which every number is exact; None if it is none."""
    try:
        return json.loads(payload, parse_float=_exact, parse_constant=_exact)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _is_portable(value: Any) -> bool:
    """Return whether it has no half of a surrogate pair, no integer beyond 64 bits and no absurd depth."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def _exact(text: str) -> float:
    number = float(text)
    if Decimal(repr(number)) != Decimal(text):
        raise ValueError(f"{text} has more digits than a float")
    return number
