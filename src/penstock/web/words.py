"""How numbers, ages and times are written on pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from markupsafe import Markup, escape

from penstock.log.problems import ROWS_MOST

NONE: Final = "–"
_UNITS: Final = ((1, "ms", 0.001), (90, "s", 1), (5_400, "m", 60), (129_600, "h", 3_600))
_SHAPES: Final = {"PENDING": "pending", "CLAIMED": "claimed", "PUBLISHED": "published", "DEAD": "dead"}


def number(value: float | None, capped: bool = False) -> str:
    """Write a count.

    >>> number(412310), number(10000, capped=True), number(None)
    ('412,310', '10,000+', '–')
    """
    if value is None:
        return NONE
    return f"{value:,.0f}{'+' if capped else ''}"


def counted(value: int) -> str:
    """Write what a survey has counted, which ends at a limit.

    >>> counted(7), counted(ROWS_MOST)
    ('7', '2,000+')
    """
    return number(value, capped=value >= ROWS_MOST)


def rate(value: float | None) -> str:
    """Write a rate per second with about three digits.

    >>> rate(21400.4), rate(0), rate(0.0456), rate(3.14159)
    ('21,400', '0', '0.046', '3.1')
    """
    if value is None:
        return NONE
    if value == 0 or value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def span(seconds: float | None) -> str:
    """Write how long something takes, or ago it is.

    >>> span(0.4), span(14 * 60), span(3.2), span(90_000), span(400_000)
    ('400ms', '14m', '3.2s', '25h', '5d')
    """
    if seconds is None:
        return NONE
    seconds = max(0.0, seconds)
    for limit, unit, size in _UNITS:
        if seconds < limit:
            return f"{seconds / size:.1f}{unit}" if unit == "s" and seconds < 10 else f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"


def moment(value: datetime | None) -> Markup | str:
    """Write a time: the day if it is not today's, the time of day in UTC; all of it as the tooltip."""
    if value is None:
        return NONE
    at = value.astimezone(UTC)
    today = at.date() == datetime.now(UTC).date()
    shown = at.strftime("%H:%M:%S") if today else at.strftime("%Y-%m-%d %H:%M")
    return _time(at, shown)


def ago(value: datetime | None, now: datetime) -> Markup | str:
    """Write how long ago something was, or in how long it will be; the time itself as the tooltip."""
    if value is None:
        return NONE
    seconds = (now - value).total_seconds()
    said = f"{span(seconds)} ago" if seconds >= 0 else f"in {span(-seconds)}"
    return _time(value.astimezone(UTC), said)


def _time(at: datetime, shown: str) -> Markup:
    whole = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup(f'<time datetime="{whole}" title="{whole}">{shown}</time>')


def state(value: str, word: str | None = None) -> Markup:
    """Write a state as a word, a shape and a colour."""
    shape = _SHAPES.get(str(value), "pending")
    said = escape(word or str(value))
    return Markup(f'<span class="state state-{shape}">{_SHAPE_MARKS[shape]}{said}</span>')


_SHAPE_MARKS: Final = {
    shape: f'<svg class="shape" viewBox="0 0 12 12" aria-hidden="true">{drawn}</svg>'
    for shape, drawn in {
        "pending": '<circle cx="6" cy="6" r="4.25"/>',
        "claimed": '<circle cx="6" cy="6" r="4.25"/><path class="fill" d="M6 1.75a4.25 4.25 0 0 1 0 8.5z"/>',
        "published": '<circle class="fill" cx="6" cy="6" r="4.75"/>',
        "dead": '<path d="M2.2 2.2l7.6 7.6M9.8 2.2l-7.6 7.6"/>',
    }.items()
}


def payload(body: bytes, content_type: str, most: int = 64 * 1024) -> str:
    """Write a body as text: JSON with line breaks and every digit as it was sent, other text as it is, else in hex."""
    raw = bytes(body)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        shown = raw[: most // 3]
        return shown.hex(" ") + (f"\n… {len(raw) - len(shown):,} more bytes" if len(shown) < len(raw) else "")
    if "json" in content_type and len(text) <= most:
        text = _indented(text)
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most:,} more characters"


class _Digits(float):
    """A number that is written as it was read: 1e400 and 64-bit integers lose nothing."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _digits(text: str) -> _Digits:
    made = _Digits(0)
    made.text = text
    return made


def _indented(text: str) -> str:
    try:
        found = json.loads(text, parse_float=_digits, parse_int=_digits, parse_constant=_digits)
        return _written(found, 0)
    except (ValueError, RecursionError):
        return text


def _written(value: Any, depth: int) -> str:
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        lines = (f"{inner}{_quoted(k)}: {_written(v, depth + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{outer}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{inner}{_written(one, depth + 1)}" for one in value) + f"\n{outer}]"
    return repr(value) if isinstance(value, _Digits) else _quoted(value)


def _quoted(value: Any) -> str:
    """Write a text, true, false or null; half of a surrogate pair stays escaped, for no page can hold it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text) else json.dumps(value)


def preview(body: bytes, size: int, most: int = 90) -> str:
    """Write the beginning of a payload in one line."""
    raw = bytes(body)
    text = raw.decode("utf-8", "replace").rstrip("\ufffd") if _is_text(raw) else raw.hex(" ")
    line = " ".join(text.split())
    return line if len(line) <= most and size <= len(raw) else f"{line[:most]}…"


def _is_text(raw: bytes) -> bool:
    try:
        raw[:-3].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def size(count: float | None) -> str:
    """Write how many bytes something takes.

    >>> size(512), size(479232), size(3 * 1024**3)
    ('512 B', '468 KiB', '3.0 GiB')
    """
    if count is None:
        return NONE
    left = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if left < 1024:
            return f"{left:.0f} {unit}" if left >= 10 or unit == "B" else f"{left:.1f} {unit}"
        left /= 1024
    return f"{left:.1f} TiB" if unit == "GiB" else NONE


def told(detail: Mapping[str, Any], most: int = 160) -> str:
    """Write the detail of an audit entry in one line."""
    return short(", ".join(f"{name}: {_plain(value)}" for name, value in detail.items() if value is not None), most)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def short(text: Any, most: int = 80) -> str:
    """Write the beginning of a text, in one line."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def middle(text: Any, most: int = 14) -> Markup:
    """Write the two ends of an id; all of it as the tooltip."""
    whole = str(text)
    shown = whole if len(whole) <= most else f"{whole[: most // 2]}…{whole[-(most // 2 - 1) :]}"
    return Markup('<span class="id" title="{}">{}</span>').format(whole, escape(shown))
