"""Times that Python can represent. Databases have others, too: infinity, the year 20000, years BC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
LATEST: Final = datetime.max.replace(tzinfo=UTC)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
POSTGRES_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
LONGEST_SECONDS: Final = 100 * 366 * 86_400.0  # the longest delay: a century


def of_micros(count: int, epoch: datetime = EPOCH) -> datetime:
    """Return the time `count` microseconds after an epoch, or the nearest that Python can represent.

    >>> of_micros(2**63 - 1) == LATEST, of_micros(-(2**63)) == EARLIEST
    (True, True)
    """
    try:
        return epoch + timedelta(microseconds=count)
    except OverflowError:
        return LATEST if count > 0 else EARLIEST


def of_postgres(raw: bytes) -> datetime:
    """Decode a time as PostgreSQL sends it: eight bytes, microseconds since 2000."""
    return of_micros(int.from_bytes(raw, "big", signed=True), POSTGRES_EPOCH)
