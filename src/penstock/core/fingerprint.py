"""Failures with a fingerprint, which thousands of equal failures share, and a traceback.

The fingerprint is a versioned hash of the error code, the exception's class, the innermost frame of the user's code,
and the message without the parts that vary from event to event: numbers, ids and quoted text.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
import traceback
from collections import Counter
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Final

from penstock.core import codec
from penstock.core.lease import Failure
from penstock.core.limits import TRACEBACK_BYTES

VERSION: Final = "1"
_TEMPLATE_LETTERS: Final = 300
_MOST_KINDS: Final = 2_000  # remembered in one process
_MOST_TEXTS: Final = 200  # of at most 8 KB each
_FRAMES: Final = 20  # of one exception
_CHAIN: Final = 4  # exceptions, from the last to its causes
_VARYING: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`"  # quoted
    r"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"  # uuids
    r"|\b0[xX][0-9a-fA-F]+\b|\b(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b"  # addresses, hashes
    r"|\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"  # ULIDs
    r"|\d+(?:[.,:_]\d+)*"
)
_INSTALLED: Final = tuple(
    sorted({f"{Path(sysconfig.get_path(name)).resolve()}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
)
_OURS: Final = f"{Path(__file__).resolve().parent.parent}/"


def of_text(code: str, message: str, error_type: str | None = None) -> Failure:
    """Describe a failure without an exception: a time-out, a dead process, a text."""
    return Failure(code, message, None, error_type, _hash(code, error_type or "", "", template(message)))


def complete(failure: Failure) -> Failure:
    """Add a fingerprint to a failure that has none."""
    if failure.fingerprint is not None:
        return failure
    kind = _hash(failure.code, failure.error_type or "", "", template(failure.message))
    return failure._replace(fingerprint=kind)


def of_exception(error: BaseException, retry_after_seconds: float | None = None) -> Failure:
    """Describe an exception; the first of each kind, and a few after it, carry their traceback."""
    failure = _plain(codec.error_code(error), _text(error), type_name(type(error)), _place(error.__traceback__))
    if retry_after_seconds is not None:
        failure = failure._replace(retry_after_seconds=retry_after_seconds)
    if error.__traceback__ is not None and _is_due(str(failure.fingerprint)):
        failure = failure._replace(traceback=traceback_text(error))
    return failure


@lru_cache(_MOST_TEXTS)
def _plain(code: str, text: str, kind: str, place: str) -> Failure:
    """Make one object for equal failures, so that it is pickled for another process only once."""
    return Failure(code, text, None, kind, _hash(code, kind, place, template(text)))


def type_name(kind: type[BaseException]) -> str:
    """`KeyError`, `shop.errors.BadOrder`"""
    module, name = kind.__module__, kind.__qualname__
    if module not in ("builtins", "__main__"):
        name = f"{module}.{name}"
    return name.encode("utf-8", "backslashreplace").decode()[:256]


def template(message: str) -> str:
    """Replace the parts of a message that vary from event to event.

    >>> template("order 17 of 'c-42' took 3.5 s")
    'order ? of ? took ? s'
    """
    return _VARYING.sub("?", message[:_TEMPLATE_LETTERS])


@lru_cache(_MOST_KINDS)
def _hash(code: str, kind: str, place: str, words: str) -> str:
    whole = "\x1f".join((code, kind, place, words)).encode("utf-8", "backslashreplace")
    return f"{VERSION}-{hashlib.blake2b(whole, digest_size=10).hexdigest()}"


def _text(error: BaseException) -> str:
    """Return the text of an exception. A KeyError's text is only a key, which is meaningless without the class."""
    text = codec.error_text(error)
    return codec.error_text(f"KeyError: {text}") if type(error) is KeyError and error.args else text


# --- places ----------------------------------------------------------------------------------------------------------


@lru_cache(_MOST_KINDS)
def _is_users(filename: str) -> bool:
    """Return whether a file is the user's: not Penstock's, the interpreter's or an installed library's."""
    return not filename.startswith(("<frozen", _OURS, *_INSTALLED))


@lru_cache(_MOST_KINDS)
def _name(code: CodeType, module: str) -> str:
    return f"{module}:{code.co_qualname}"


def _place(trace: TracebackType | None) -> str:
    """Return the innermost frame of the user's code, or of any code if no frame is the user's."""
    last: FrameType | None = None
    users: FrameType | None = None
    while trace is not None:
        last = trace.tb_frame
        if _is_users(last.f_code.co_filename):
            users = last
        trace = trace.tb_next
    frame = users or last
    if frame is None:
        return ""
    module = frame.f_globals.get("__name__")
    return _name(frame.f_code, module if isinstance(module, str) else "")


# --- tracebacks ------------------------------------------------------------------------------------------------------

_seen: Counter[str] = Counter()


def _is_due(fingerprint: str) -> bool:
    """Return true for the first of its kind, the second, the fourth, …: the settle with the first may be lost."""
    if len(_seen) >= _MOST_KINDS and fingerprint not in _seen:
        _seen.clear()
    _seen[fingerprint] += 1
    count = _seen[fingerprint]
    return count & (count - 1) == 0


def traceback_text(error: BaseException) -> str:
    """Format the user's frames of an exception and its causes, causes first, in at most 8 KB."""
    parts: list[str] = []
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and len(parts) < _CHAIN and id(current) not in seen:
        seen.add(id(current))
        parts.append(_one(current))
        if current.__cause__ is not None:
            current = current.__cause__
        else:
            current = None if current.__suppress_context__ else current.__context__
    text = "\nwhich led to:\n\n".join(reversed(parts))
    encoded = text.replace("\x00", "\\0").encode("utf-8", "backslashreplace")
    if len(encoded) > TRACEBACK_BYTES:  # the end is the most useful
        encoded = b"[cut] \xe2\x80\xa6\n" + encoded[-(TRACEBACK_BYTES - 16) :]
    return encoded.decode("utf-8", "ignore")


def _one(error: BaseException) -> str:
    frames = _frames(error.__traceback__)
    shown = frames if len(frames) <= _FRAMES else [*frames[: _FRAMES // 2], *frames[-_FRAMES // 2 :]]
    try:
        lines = traceback.format_list(shown)
    except Exception:  # the source cannot be read
        lines = [f'  File "{one.filename}", line {one.lineno}, in {one.name}\n' for one in shown]
    if len(shown) < len(frames):
        lines.insert(_FRAMES // 2, f"  [{len(frames) - len(shown)} more frames]\n")
    text = _text(error)
    kind = type_name(type(error))
    return "".join(lines) + (text if text.startswith(kind) else f"{kind}: {text}") + "\n"


def _frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Return the user's frames, or all if none is the user's; without variables, whose values may be secrets."""
    everything = [(frame, line) for frame, line in traceback.walk_tb(trace)]
    users = [(frame, line) for frame, line in everything if _is_users(frame.f_code.co_filename)]
    return [
        traceback.FrameSummary(frame.f_code.co_filename, line, frame.f_code.co_qualname, lookup_line=True)
        for frame, line in users or everything
    ]
