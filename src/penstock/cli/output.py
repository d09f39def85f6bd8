"""What commands print: one JSON document, or compact tables with ages and colours."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

import orjson

from penstock.cli.tables import GAP, Column, layout
from penstock.core.codec import JSON
from penstock.core.delivery import State
from penstock.core.finding import duration

if TYPE_CHECKING:  # rich is loaded when something is shown
    from rich.console import Console, RenderableType
    from rich.text import Text

_COLOURS: Mapping[str, str] = {
    State.PENDING: "yellow",
    State.CLAIMED: "cyan",
    State.PUBLISHED: "green",
    State.DEAD: "bold red",
}
NONE = "-"
_PICTURE = 24  # letters of a cell that is no text
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
    from rich.console import Console

    watched = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if watched or os.environ.get("COLUMNS") else _PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def table(
    columns: Iterable[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    title: str | None = None,
    width: int | None = None,
) -> RenderableType:
    """A compact table. `>name` is right-aligned, `name…` is cut where space is short, `name?` is then left out.

    Numbers are never cut. What does not fit in one line per row is shown as one line per cell.
    """
    from rich import box
    from rich.table import Table

    cells = [*rows]
    known = [Column.of(place, spec, [_width(row[place]) for row in cells]) for place, spec in enumerate(columns)]
    widths = layout(known, width or console().width)
    if widths is None:
        return _below_each_other(known, cells, title)
    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        title=title,
        title_justify="left",
        title_style="bold",
    )
    for one, wide in widths.items():
        justify: Literal["left", "right"] = "right" if one.right else "left"
        made.add_column(one.name, justify=justify, no_wrap=True, overflow="ellipsis", width=wide)
    for row in cells:
        made.add_row(*(row[one.place] for one in widths))
    return made


def _below_each_other(
    columns: Sequence[Column], rows: Sequence[Sequence[RenderableType]], title: str | None
) -> RenderableType:
    parts: list[RenderableType] = [styled(title, "bold")] if title else []
    for number, row in enumerate(rows):
        parts += [""] if number else []
        parts.append(pairs((one.name, row[one.place]) for one in columns if str(row[one.place])))
    return stacked(*parts)


def _width(cell: RenderableType) -> int:
    from rich.cells import cell_len

    return cell_len(str(cell)) if isinstance(cell, str) or hasattr(cell, "plain") else _PICTURE


def pairs(rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Names and values, one to a line."""
    from rich.table import Table

    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def stacked(*parts: RenderableType) -> RenderableType:
    """One below the other."""
    from rich.console import Group

    return Group(*parts)


def styled(text: str, style: str) -> Text:
    """Text in a style of rich."""
    from rich.text import Text

    return Text(text, style=style)


def state_text(state: str) -> Text:
    """A state in its colour."""
    return styled(state, _COLOURS.get(state, ""))


def number(value: int | float) -> str:
    """1,234,567"""
    return f"{value:,}"


def plain(text: object) -> str:
    """Text from outside, safe for a terminal: what does not print is escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))


def cell(text: object, most: int = 60) -> str:
    """Text from outside in a table's cell: one line, not too long."""
    cleaned = NONE if text is None else plain(text)
    return cleaned if len(cleaned) <= most else cleaned[: most - 1] + "…"


def payload_text(event: EventLike, most: int = 60) -> str:
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
