"""Handlers that run until they are told to end. The payload says how they behave."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock import Event
from tests.support.notes import write_note


def patient(event: Event, ctx: Any) -> None:
    """Run until cancelled, if the payload says so; then end as it says."""
    said = event.json()
    write_note(f"{event.offset} began")
    if said.get("wait"):
        while not ctx.cancelled:
            time.sleep(0.005)
        write_note(f"{event.offset} told")
    if said.get("end") == "raise":
        raise RuntimeError("ended early")


def deaf(event: Event) -> None:
    """Hang, if the payload says so."""
    write_note(f"{event.offset} began")
    if event.json().get("wait"):
        time.sleep(3600)


async def deaf_async(event: Event) -> None:
    write_note(f"{event.offset} began")
    if event.json().get("wait"):
        await asyncio.sleep(3600)


def deaf_many(events: list[Event]) -> None:
    write_note(f"{events[0].offset} began")
    if any(event.json().get("wait") for event in events):
        time.sleep(3600)
