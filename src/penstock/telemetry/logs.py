"""Log records as lines of JSON, with what they are about as fields; also for programs that use the library.

>>> import logging
>>> handler = logging.StreamHandler()
>>> handler.setFormatter(JsonFormatter())
>>> logging.getLogger("penstock").addHandler(handler)
>>> logging.getLogger("penstock").removeHandler(handler)
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any

import orjson

from penstock.core.log_fields import fields_of
from penstock.core.urls import without_secrets


class JsonFormatter(logging.Formatter):
    """One JSON object for each record: `at`, `level`, `message`, the fields of every line, and the record's own."""

    def format(self, record: logging.LogRecord) -> str:
        return as_line(document_of(record))


def document_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return a record as an object; what looks like a secret is masked."""
    fields = fields_of(record)
    found = {
        "at": datetime.fromtimestamp(record.created, UTC),
        "level": record.levelname.lower(),
        "event": fields.pop("event"),
        "message": without_secrets(record.getMessage()),
        **fields,
    }
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        found["code"] = found["code"] or getattr(error, "code", None) or type(error).__name__
        found["traceback"] = without_secrets("".join(traceback.format_exception(error)))
    return found


def document(level: str, event: str, message: str, **fields: Any) -> dict[str, Any]:
    """Return a line that is no log record, with the same fields."""
    about = fields_of(None) | {"event": event} | fields
    return {
        "at": datetime.now(UTC),
        "level": level,
        "event": about.pop("event"),
        "message": without_secrets(message),
        **about,
    }


def as_line(document: dict[str, Any]) -> str:
    """Return an object as one line, whatever is in it: half a surrogate pair of an error's words, for example."""
    try:
        return orjson.dumps(document, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()
    except orjson.JSONEncodeError:
        return json.dumps(document, default=_plain)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
