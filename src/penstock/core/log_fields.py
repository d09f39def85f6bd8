"""What a log line is about, for whoever reads it with a program: fields beside its words."""

from __future__ import annotations

from typing import Any, Final

FIELDS: Final = ("event", "run", "stream", "group", "lease", "code")  # every line has these; null where there is none
_process: dict[str, int | None] = {"run": None}


def about(event: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return the `extra` of a log record: what happened, to which `stream/group` or `source > stream`, and more.

    >>> about("lease_lost", "orders/fraud", lease=7)
    {'penstock': {'event': 'lease_lost', 'stream': 'orders', 'group': 'fraud', 'lease': 7}}
    """
    stream, _, group = (name or "").rpartition(" > ")[2].partition("/")
    named = {"stream": stream, "group": group} if group else {"stream": stream} if stream else {}
    return {"penstock": {"event": event, **named, **fields}}


def belongs_to(run: int | None) -> None:
    """Note the run that this process works for; all its lines have it as a field."""
    _process["run"] = run


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a log record: all of `FIELDS`, and its own."""
    own = getattr(record, "penstock", None)
    given = own if isinstance(own, dict) else {}
    known = {"event": "log", **dict.fromkeys(FIELDS[1:]), "run": _process["run"]}
    return known | given
