"""What an HTTP answer means for a message."""

from __future__ import annotations

import time
from collections.abc import Collection
from email.utils import parsedate_to_datetime

from penstock.declare.publisher import OK, Result

# Nobody is let in, too many requests, nobody behind the gateway: they speak of the target, not of one message.
UNAVAILABLE = (401, 407, 429, 502, 503)
_LONGEST = 7 * 86_400.0  # seconds that a target may ask us to wait
_AGAIN = (403, 404, 408, 425)  # of 4xx: somebody may put these right without a change of the message


def result_of(status: int, retry_after: str | None, text: str, unavailable: Collection[int] = UNAVAILABLE) -> Result:
    """Return the result: 2xx is ok, some say that the target is down, other 4xx are permanent, the rest is retried."""
    if 200 <= status < 300:
        return OK
    code, message = f"http_{status}", f"HTTP {status}" + (f": {text}" if text else "")
    after = seconds_of(retry_after)
    if status in unavailable:
        return Result.unavailable(code, message, after)
    if 400 <= status < 500 and status not in _AGAIN:
        return Result.permanent(code, message)
    return Result.retry(code, message, after)


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds that `Retry-After` asks for: a number, or a date; None if it says nothing sensible.

    >>> seconds_of("120"), seconds_of("soon")
    (120.0, None)
    """
    if retry_after is None:
        return None
    text = retry_after.strip()
    try:
        if text.isascii() and text.isdecimal():
            seconds = float(text)
        else:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST)
