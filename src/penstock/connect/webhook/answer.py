"""What an HTTP answer means for a message."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from penstock.declare.publisher import OK, Result

_LONGEST = 7 * 86_400.0  # seconds that a target may ask us to wait
_AGAIN = (408, 425, 429)
_UNAVAILABLE = 503
_GONE = 410


def result_of(status: int, retry_after: str | None, text: str) -> Result:
    """Return the result: 2xx is ok, 503 says that the target is down, 4xx are permanent, the rest may be retried."""
    if 200 <= status < 300:
        return OK
    code, message = f"http_{status}", f"HTTP {status}" + (f": {text}" if text else "")
    after = seconds_of(retry_after)
    if status == _UNAVAILABLE:
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
    try:
        if retry_after.strip().isdecimal():
            seconds = float(retry_after)
        else:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST)
