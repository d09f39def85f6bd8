"""An app whose process is killed while it loads: in the file `$PENSTOCK_KILLS` every byte is a start, and x a kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from penstock import Event
from tests.support.children.handlers import act
from tests.support.notes import write_note


def _killed() -> bool:
    path = os.environ.get("PENSTOCK_KILLS")
    if path is None or os.environ["PENSTOCK_ENGINE"] == str(os.getpid()):
        return False
    left = Path(path).read_bytes()
    Path(path).write_bytes(left[1:])
    return left[:1] == b"x"


if _killed():
    os.kill(os.getpid(), signal.SIGKILL)


def handle(event: Event) -> None:
    write_note(f"{event.offset} {event.attempts}")
    act(event.json()["script"].get(str(event.attempts)))
