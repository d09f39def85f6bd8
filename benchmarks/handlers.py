"""The handlers that are measured; at the top of a module, so that their own processes find them."""

from __future__ import annotations

import os
import time

from penstock import Context, Event

WARM = 100_000  # events that are handled before anything is measured, where something has to get warm


CALLS = "PENSTOCK_BENCH_CALLS"  # names the file of `note_call`


def note_call(event: Event) -> None:
    """Write when it was called, in twenty characters."""
    now = time.monotonic_ns()
    with open(os.environ[CALLS], "ab", buffering=0) as file:
        file.write(b"%20d" % now)


def parse(event: Event) -> None:
    event.json()


def parse_many(events: list[Event]) -> None:
    for event in events:
        event.json()


def parse_and_count(event: Event, ctx: Context) -> None:
    event.json()
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1


def spin(event: Event) -> None:
    """About 100 µs of CPU."""
    end = time.thread_time_ns() + 100_000
    while time.thread_time_ns() < end:
        pass


def sleep_1_ms(event: Event) -> None:
    time.sleep(0.001)


def one_percent_never(event: Event) -> None:
    """As `one_percent`, but for the raising."""
    if event.json()["id"] % 100 == 100:
        raise ValueError("never")


def one_percent_behind(event: Event) -> None:
    """As `one_percent`, but not before the measuring begins: retries of the warm-up would be measured, too."""
    if event.json()["id"] % 100 == 7 and event.offset > WARM:
        raise ValueError("one in a hundred")


def one_percent(event: Event) -> None:
    if event.json()["id"] % 100 == 7:
        raise ValueError("one in a hundred")


def one_per_mille(event: Event) -> None:
    """Of each thousand in a row another one, so that it is another key each time."""
    event.json()
    if (31 * event.offset + event.offset // 1000) % 1000 == 7:
        raise ValueError("one in a thousand")


def one_per_mille_of_ten_keys(event: Event) -> None:
    """Every tenth event of ten keys: no sooner is a key free again than it fails again."""
    number = event.json()["id"]
    if (31 * number + number // 1000) % 1000 == 7:
        raise ValueError("one in a thousand")


async def wait_50_ms(event: Event) -> None:
    import asyncio

    await asyncio.sleep(0.05)
