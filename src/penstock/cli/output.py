"""What commands print: one JSON document, or compact tables with ages and colours."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.core.codec import JSON
from penstock.core.delivery import State
from penstock.core.finding import duration

_COLOURS: Mapping[str, str] = {
    State.PENDING: "yellow",
    State.CLAIMED: "cyan",
    State.PUBLISHED: "green",
    State.DEAD: "bold red",
}
NONE = "-"
_WIDE, _NARROWEST, _GAP = 110, 12, 2  # letters
_PIPE_WIDTH = 200  # a pipe has no width; cutting its columns at 80 would lose what the reader greps for


class EventLike(Protocol):
    """An event or a delivery: both have the event's fields."""

    @property
    def stream(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def event_id(self) -> Any: ...
    @property
    def event_type(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def content_type(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def metadata(self) -> dict[str, Any]: ...
    @property
    def partition_key(self) -> str | None: ...
    @property
    def ordering_key(self) -> str | None: ...
    @property
    def available_at(self) -> datetime | None: ...
    @property
    def created_at(self) -> datetime: ...


# --- JSON --------------------------------------------------------------------------------------------------------


def write_json(document: object) -> None:
    """The one document on standard output, in UTF-8 whatever the terminal speaks."""
    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATETIME
    if sys.stdout.isatty():
        options |= orjson.OPT_INDENT_2
    sys.stdout.flush()
    sys.stdout.buffer.write(orjson.dumps(document, default=_plain_value, option=options))
    sys.stdout.flush()


def _plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError


def event_document(event: EventLike) -> dict[str, Any]:
    """An event in the specification's names; a payload that is no JSON comes as `payload_base64`."""
    return {
        "stream": event.stream,
        "offset": event.offset,
        "event_id": event.event_id,
        "event_type": event.event_type,
        **_payload_document(event.payload, event.content_type),
        "content_type": event.content_type,
        "headers": event.headers,
        "metadata": event.metadata,
        "partition_key": event.partition_key,
        "ordering_key": event.ordering_key,
        "available_at": event.available_at,
        "created_at": event.created_at,
    }


def _payload_document(payload: bytes, content_type: str) -> dict[str, Any]:
    body = bytes(payload)
    if content_type == JSON:
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError:
            pass
        else:
            return {"payload": orjson.Fragment(body)}  # as it was appended, to the last digit
    return {"payload_base64": base64.b64encode(body).decode()}


# --- tables ------------------------------------------------------------------------------------------------------


def console() -> Console:
    """Standard output. NO_COLOR and COLUMNS are respected."""
    return _console(stderr=False)


def error_console() -> Console:
    """Standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    watched = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if watched or os.environ.get("COLUMNS") else _PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def table(columns: Iterable[str], rows: Iterable[Sequence[RenderableType]], *, title: str | None = None) -> Table:
    """A compact table. `>name` is right-aligned, `name…` is cut where space is short, `name?` is then left out."""
    width, cells = console().width, list(rows)
    wanted = [(place, name) for place, name in enumerate(columns) if width >= _WIDE or not name.endswith("?")]
    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=title,
        title_justify="left",
        title_style="bold",
    )
    fixed = sum(_width(name, place, cells) + _GAP for place, name in wanted if not name.endswith("…"))
    cut = max(_NARROWEST, (width - fixed) // max(1, sum(name.endswith("…") for _, name in wanted)) - _GAP)
    for _, name in wanted:
        made.add_column(
            name.strip(">…?"),
            justify="right" if name.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis" if name.endswith("…") else "fold",
            max_width=cut if name.endswith("…") else None,
        )
    for row in cells:
        made.add_row(*(row[place] for place, _ in wanted))
    return made


def _width(name: str, place: int, cells: Iterable[Sequence[RenderableType]]) -> int:
    return max([len(name.strip(">…?")), *(len(str(row[place])) for row in cells)])


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names and values, one to a line."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def state_text(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=_COLOURS.get(state, ""))


def number(value: int | float) -> str:
    """1,234,567"""
    return f"{value:,}"


def plain(text: object) -> str:
    """Text from outside, safe for a terminal: what does not print is escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))


def cell(text: object, most: int = 60) -> Text:
    """Text from outside in a table's cell: one line, not too long."""
    cleaned = NONE if text is None else plain(text)
    return Text(cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…")


def payload_text(event: EventLike, most: int = 60) -> Text:
    """The beginning of a payload."""
    return cell(bytes(event.payload[: most * 4]).decode("utf-8", "backslashreplace"), most)


def seconds(value: float | None) -> str:
    """A duration in the one unit that matters: 850ms, 12s, 3m, 5h, 2d."""
    return NONE if value is None else duration(value)


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, or in how long."""
    if moment is None:
        return NONE
    passed = ((now or datetime.now(UTC)) - moment).total_seconds()
    return f"in {seconds(-passed)}" if passed < 0 else f"{seconds(passed)} ago"


def moment_text(moment: datetime | None) -> str:
    """A time in full, with its age."""
    if moment is None:
        return NONE
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds').replace('+00:00', 'Z')} ({age(moment)})"
