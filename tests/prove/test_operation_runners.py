"""Operations whose runners are killed and frozen, two processes at a time, while a group works on what they move."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import penstock
from tests.support.children import operation_runner
from tests.support.postgres_server import PostgresServer
from tests.support.raw_sql import raw
from tests.support.running import PYTHONPATH, Running
from tests.support.waiting import wait_until

EVENTS, KEYS = 4_000, 50
LEASE_SECONDS = 0.4
HOPELESS = 7  # every so manieth dies again


class Runners:
    """Two of them; one that is killed is replaced."""

    def __init__(self, stack: ExitStack, directory: Path, url: str, rng: random.Random) -> None:
        self._stack, self._directory, self._url, self._rng = stack, directory, url, rng
        self._started = 0
        self._running = [self._start() for _ in range(2)]

    def _start(self) -> Running:
        self._started += 1
        directory = self._directory / f"runner-{self._started}"
        directory.mkdir()
        command = (sys.executable, operation_runner.__file__, self._url, str(LEASE_SECONDS))
        return self._stack.enter_context(Running(directory, *command, environment={"PYTHONPATH": PYTHONPATH}))

    def kill(self) -> None:
        place = self._rng.randrange(2)
        victim = self._running[place]
        victim.wait_until(lambda: "ready" in victim.out, "it is ready")
        victim.process.kill()
        victim.wait()
        self._running[place] = self._start()

    def freeze(self) -> None:
        """For less or more than the time after which the other one goes on."""
        victim = self._rng.choice(self._running).process
        victim.send_signal(signal.SIGSTOP)
        time.sleep(self._rng.choice([0.1, 2.5 * LEASE_SECONDS]))  # the freeze itself; nothing is waited for
        victim.send_signal(signal.SIGCONT)

    def check_all_run(self) -> None:
        assert all(one.process.poll() is None for one in self._running), [one.err for one in self._running]


def work(log: penstock.Log, group: str, order: dict[str, list[int]]) -> bool:
    """Handle what is there; some events never succeed. Returns whether there was anything."""
    lease = log.claim("orders", group, claimed_by="w", limit=500)
    if lease is None:
        return False
    for one in lease.events:
        order.setdefault(one.ordering_key or "", []).append(one.offset)
    lease.settle(dead={one.event_id: "hopeless" for one in lease.events if one.json()["n"] % HOPELESS == 0})
    return True


@pytest.mark.shows("O04", "O14")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_runners_that_are_killed_and_frozen_move_everything_once(tmp_path: Path, seed: int) -> None:
    """Every dead letter is moved once and in the order of its key, and the operation's own numbers say so."""
    rng = random.Random(seed)
    with PostgresServer() as server, ExitStack() as stack:
        url = server.create_database()
        log = stack.enter_context(penstock.open(url))
        log.create_group(
            "orders", "g", retry=penstock.Retry(max_attempts=1), ordering="key", on_dead="continue", lanes=2
        )
        events = [{"payload": {"n": n}, "type": "t", "ordering_key": f"k{n % KEYS}"} for n in range(EVENTS)]
        log.append_many("orders", events)
        while (lease := log.claim("orders", "g", claimed_by="w", limit=1_000)) is not None:
            lease.settle(dead={one.event_id: "no such customer" for one in lease.events})
        started = log.operation("redrive", "orders", "g", all=True, canary=20, by="test").start()
        assert started.id is not None
        runners = Runners(stack, tmp_path, url, rng)
        order: dict[str, list[int]] = {}
        while not log.get_operation(started.id).info.ended:
            work(log, "g", order)
            rng.choice([runners.kill, runners.freeze, lambda: work(log, "g", order)])()
            runners.check_all_run()
        wait_until(lambda: not work(log, "g", order) and log.drained("orders", "g"), "the group has handled them")

        done = log.get_operation(started.id).info
        assert (done.state, done.moved, done.canaries_ended) == ("done", EVENTS, 20), done
        with raw(url) as sql:
            redriven = Counter(
                row[0] for row in sql("select \"offset\" from penstock.attempt_log where outcome = 'redriven'")
            )
        assert len(redriven) == EVENTS and set(redriven.values()) == {1}
        assert all(offsets == sorted(offsets) for offsets in order.values())
        numbers = log.stats("orders", "g").groups[0]
        hopeless = len(range(0, EVENTS, HOPELESS))
        assert (numbers.dead, numbers.published) == (hopeless, EVENTS - hopeless)
        (audited,) = [one for one in log.audit(limit=50) if one.action == "operation_done"]
        assert audited.count == EVENTS
