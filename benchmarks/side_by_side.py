"""Run workers of ours and of others as processes of their own, side by side on one server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

PYTHON = Path(os.environ.get("PENSTOCK_PEERS", ".venv/peers")) / "bin" / "python"
PGQUEUER = Path(__file__).with_name("pgqueuer_peer.py")
PGMQ = Path(__file__).with_name("pgmq_peer.py")


def peer(script: Path, *arguments: object) -> list[str]:
    """The command that runs a peer, in the peers' own environment."""
    return [str(PYTHON), str(script), *map(str, arguments)]


def ask(command: Sequence[str]) -> str:
    """Run a command to its end; what it printed."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def together(command: Sequence[str], count: int) -> float:
    """Run a command so many times at once. Each prints when its first job began, when its last ended, and how many it
    did; the rate is that of all of them."""
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    said = [[float(word) for word in one.communicate()[0].split()] for one in processes]
    worked = [one for one in said if one[2] > 0]
    return sum(one[2] for one in worked) / (max(one[1] for one in worked) - min(one[0] for one in worked))


def settled(url: str) -> tuple[int, float]:
    """How many events and jobs a log has finished, and in how many seconds, from the first claim to the last settle."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select sum(published), extract(epoch from max(ended_at) - min(claimed_at))::float8 "
            "from penstock.leases where members > 0"
        ).fetchone()
    assert row is not None
    return int(row[0]), float(row[1])


@contextmanager
def running(command: Sequence[str], *, pipes: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended, stopped or not; with `pipes` it can be spoken to."""
    pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()


def noted(notes: Path, count: int, warm: int) -> list[float]:
    """Wait until so many were handled. The first of them are not counted: they find everything cold."""
    deadline = time.monotonic() + 60
    while len(lines := notes.read_text().split() if notes.exists() else []) < count:
        assert time.monotonic() < deadline, f"{len(lines)} of {count} were handled"
        time.sleep(0.02)
    return [float(one) for one in lines][warm:]


def share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
