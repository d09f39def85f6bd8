"""Switch Python threads more often while an engine works."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS = 0.0005


@contextmanager
def quick_turns() -> Iterator[None]:
    """Make busy handlers yield to the prefetch thread, whose many small steps would wait 5 ms each by default."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
