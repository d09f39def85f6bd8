"""`penstock worker` as a process of its own, with one job type, and what its leases say of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmarks.side_by_side import settled

APP = """
import asyncio, json, time
from penstock import App

app = App({url!r}, name="jobs")

@app.job("order", concurrency={places}, max_attempts=1)
{way} work(order):
    {body}
"""
_numbers = count()
_LOAD = 50_000


def app(url: str, folder: Path, body: str, *, places: int = 1, is_async: bool = False) -> Path:
    """An app with one job."""
    file = folder / f"app{next(_numbers)}.py"
    way = "async def" if is_async else "def"
    file.write_text(APP.format(url=url, places=places, way=way, body=body))
    return file


def worker(file: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli", "worker", str(file), "--quiet", *options]


def drain(url: str, file: Path, workers: int = 1) -> float:
    """Jobs a second, from the first claim to the last settle."""
    command = worker(file, "--until-drained")
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(workers)]
    assert [one.wait() for one in runs] == [0] * workers
    jobs, seconds = settled(url)
    return jobs / seconds


def orders(numbers: range) -> Sequence[dict[str, object]]:
    """Jobs with the payload of the peers' jobs."""
    return [{"type": "order", "payload": {"id": n, "text": "x" * 170}} for n in numbers]


def loads(jobs: int) -> Sequence[range]:
    """The numbers of so many jobs, in parts that are submitted at once."""
    return [range(first, min(first + _LOAD, jobs)) for first in range(0, jobs, _LOAD)]
