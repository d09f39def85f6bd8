"""An app that loads slowly, for example because it loads a model."""

from __future__ import annotations

import os
import time
from typing import Any

from penstock import Event
from tests.support.children.handlers import act
from tests.support.notes import write_note

time.sleep(float(os.environ.get("PENSTOCK_LOADS", "0")))


def handle(event: Event) -> None:
    write_note(f"{event.offset} {event.attempts}")
    act(event.json()["script"].get(str(event.attempts)))


def do_job(payload: dict[str, Any], ctx: Any) -> None:
    """The same for a job."""
    write_note(f"{payload.get('n', 0)} {ctx.job.attempts}")
    if ctx.job.attempts == 1:
        act(payload.get("do"))
