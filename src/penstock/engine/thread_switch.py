"""How often Python threads take turns while an engine works."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS = 0.0005


@contextmanager
def quick_turns() -> Iterator[None]:
    """A handler that computes gives way to the thread that reads ahead; at the interpreter's own pace that thread would
    wait 5 ms for each of its many small steps."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
