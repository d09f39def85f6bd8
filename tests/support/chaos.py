"""Engines in separate processes that are killed, stopped and frozen at random."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import penstock
from tests.support.children import chaos_app
from tests.support.done_table import create_done_table, done_offsets
from tests.support.notes import read_notes
from tests.support.running import PYTHONPATH, Running
from tests.support.waiting import wait_until

KEYS = 4
PATIENCE_SECONDS = 150


class Engines:
    """Several engines on one log; an engine that is ended is replaced."""

    def __init__(self, stack: ExitStack, directory: Path, url: str, seed: int, count: int) -> None:
        self._stack, self._directory = stack, directory
        self._environment = {
            "PENSTOCK_CHAOS": url,
            "PENSTOCK_SEED": str(seed),
            "PENSTOCK_NOTES": str(directory / "notes"),
            "PYTHONPATH": PYTHONPATH,
        }
        self._started = 0
        self.running = [self._start() for _ in range(count)]

    def _start(self) -> Running:
        self._started += 1
        directory = self._directory / f"engine-{self._started}"
        directory.mkdir()
        command = (sys.executable, chaos_app.__file__)
        return self._stack.enter_context(Running(directory, *command, environment=self._environment))

    def disturb(self, rng: random.Random) -> None:
        """Kill one, stop one, or freeze one for longer than its leases last."""
        place, how = rng.randrange(len(self.running)), rng.choice(["kill", "stop", "freeze"])
        victim = self.running[place].process
        if how == "freeze":
            victim.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0.1, 3))  # the freeze itself; nothing is waited for
            victim.send_signal(signal.SIGCONT)
            return
        victim.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        try:
            ended = self.running[place].wait()
        except subprocess.TimeoutExpired:
            print(_signals_of(victim.pid))
            victim.send_signal(signal.SIGUSR1)
            wait_until(lambda: "most recent call first" in self.running[place].err, "its stacks")
            raise
        assert how == "kill" or ended in (0, -signal.SIGTERM), self.running[place].err
        self.running[place] = self._start()

    def assert_all_run(self) -> None:
        """No engine has ended by itself."""
        assert all(one.process.poll() is None for one in self.running), [one.err for one in self.running]


def _signals_of(pid: int) -> str:
    """What the kernel knows of a process's signals: blocked, ignored, caught, pending."""
    lines = [
        line for task in Path(f"/proc/{pid}/task").iterdir() for line in (task / "status").read_text().splitlines()
    ]
    return "\n".join(line for line in lines if line.startswith(("Name", "State", "Sig", "Shd")))


def run_chaos(log: penstock.Log, url: str, directory: Path, seed: int, *, events: int, seconds: float) -> None:
    """Disturb random engines for a while, let the rest finish, then count every call and effect."""
    rng = random.Random(seed)
    create_done_table(url)
    log.append_many("orders", [{"payload": {}, "type": "t", "ordering_key": f"k{n % KEYS}"} for n in range(events)])
    with ExitStack() as stack:
        engines = Engines(stack, directory, url, seed, rng.choice([1, 2, 3]))
        engines.running[0].wait_until(lambda: bool(log.groups("orders")), "its group")
        began = time.monotonic()
        while not (over := time.monotonic() > began + seconds) or not log.drained("orders", "g"):
            assert time.monotonic() < began + PATIENCE_SECONDS, log.stats()
            engines.assert_all_run()
            if not over and rng.random() < 0.3:
                engines.disturb(rng)
            if over and log.groups("orders")[0].paused:
                log.resume("orders", "g")  # the crash-loop guard: ten deaths in a row
            time.sleep(rng.uniform(0.05, 0.3))
    _check(log, url, directory / "notes", events)


def _check(log: penstock.Log, url: str, notes: Path, events: int) -> None:
    calls = Counter((offset, attempt) for offset, attempt in read_notes(notes))
    assert [call for call, times in calls.items() if times > 1] == []
    shown = log.deliveries("orders", "g", limit=events + 1)
    published = sorted(one.offset for one in shown if one.state == "PUBLISHED")
    assert len(shown) == events and {str(one.state) for one in shown} <= {"PUBLISHED", "DEAD"}
    committed = done_offsets(url)
    assert sorted(committed) == published
    assert sorted(one.json()["offset"] for one in log.read("seen", limit=10_000)) == published
    ordered = log.groups("orders")[0].ordered
    for key in range(KEYS):
        own = [offset for offset in published if (offset - 1) % KEYS == key]
        seen = log.state("orders", "g", f"k{key}").get("seen", [])
        assert seen == [n for n in committed if (n - 1) % KEYS == key]
        assert (seen if ordered else sorted(seen)) == own
    for one in shown:
        history = log.delivery("orders", "g", one.offset).history
        claims = [line for line in history if line.outcome == "claimed"]
        assert [line.attempt for line in claims] == list(range(1, one.attempts + 1)), history
        assert len(history) == 2 * len(claims), history
        assert max((int(n) for offset, n in calls if int(offset) == one.offset), default=0) <= one.total_attempts
