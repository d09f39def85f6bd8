"""Whatever a handler does, it affects only its own event."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.declare.portable import PortableSubscription
from tests.support.children import handlers
from tests.support.declarations import subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.faults import EVENTS, FAULTS, LIMITS, append_with_faults, check_only_faults_are_dead
from tests.support.local_engine import run_local_until_drained
from tests.support.notes import read_notes


@pytest.mark.shows("S01", "K13", "K14", "K28")
def test_every_fault_ends_dead_and_all_others_published(log: penstock.Log, notes: Path) -> None:
    faults = append_with_faults(log)
    engine = run_local_until_drained(log, subscription(handlers.plain, **LIMITS))
    check_only_faults_are_dead(log, faults)
    # An event without effects is not run again when another event ends the process.
    calls = Counter(int(offset) for offset, _ in read_notes(notes))
    assert all(calls[offset] == 1 for offset in range(1, EVENTS + 2) if offset not in faults)
    assert engine.snapshot()["orders/g"]["deaths"] == 2 * sum(
        fault in ("hang", "exit", "segfault", "kill", "memory") for fault in FAULTS
    )


@pytest.mark.shows("S01", "K27")
@pytest.mark.parametrize("ordering", [None, "key"])
def test_effects_of_neighbours_happen_exactly_once(log: penstock.Log, log_url: str, ordering: str | None) -> None:
    create_done_table(log_url)
    faults = append_with_faults(log)
    run_local_until_drained(log, subscription(handlers.counting, **LIMITS, ordering=ordering))
    check_only_faults_are_dead(log, faults)
    good = [offset for offset in range(1, EVENTS + 2) if offset not in faults]
    assert sorted(done_offsets(log_url)) == good
    assert sorted(event.json()["offset"] for event in log.read("seen", limit=10_000)) == good
    expected = Counter(f"k{(offset - 1) % 20}" for offset in good)
    assert {key: log.state("orders", "g", key)["seen"] for key in expected} == expected


@pytest.mark.shows("S01", "K27")
def test_inline_handlers_that_raise_fail_only_their_event(log: penstock.Log, log_url: str) -> None:
    create_done_table(log_url)
    log.append_many(
        "orders",
        [
            {"payload": {"do": "raise" if n % 10 == 3 else None}, "type": "t", "ordering_key": f"k{n % 7}"}
            for n in range(200)
        ],
    )
    run_local_until_drained(log, subscription(handlers.counting, isolation="inline"))
    good = [n + 1 for n in range(200) if n % 10 != 3]
    assert sorted(done_offsets(log_url)) == good
    assert sorted(one.offset for one in log.deliveries("orders", "g", state="DEAD")) == [
        n + 1 for n in range(200) if n % 10 == 3
    ]


@pytest.mark.shows("S01")
@pytest.mark.parametrize("fault", ["exit", "hang", "memory", "raise"])
def test_with_many_in_flight_only_the_culprit_is_blamed(log: penstock.Log, notes: Path, fault: str) -> None:
    payloads = [{"do": fault if n == 17 else None} for n in range(40)]
    log.append_many("orders", [{"payload": payload, "type": "t"} for payload in payloads])
    run_local_until_drained(log, subscription(handlers.slow_or_worse, concurrency=8, timeout_seconds=2, memory_mb=300))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.failures) == (18, 2)
    assert len(log.deliveries("orders", "g", state="PUBLISHED")) == 39


@pytest.mark.shows("S01")
def test_a_leak_is_seen_however_busy_the_process_is(log: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports arrive so often that the engine never waits; it must still check the memory."""
    monkeypatch.setattr("penstock.engine.isolation.supervised._CHUNK", 2)
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 1_000)
    engine = run_local_until_drained(log, subscription(handlers.leaking, memory_mb=300))
    assert engine.snapshot()["orders/g"]["deaths"] >= 2
    assert len(log.deliveries("orders", "g", state="PUBLISHED")) == 1_000


@pytest.mark.shows("S01")
def test_async_handlers_time_out_and_die_alone(log: penstock.Log) -> None:
    payloads = [{"seconds": 3600 if n == 5 else 0.001, "do": "exit" if n == 11 else None} for n in range(30)]
    log.append_many("orders", [{"payload": payload, "type": "t"} for payload in payloads])
    run_local_until_drained(log, subscription(handlers.slow_async, concurrency=8, timeout_seconds=1))
    errors = {one.offset: str(one.last_error) for one in log.deliveries("orders", "g", state="DEAD")}
    assert errors == {
        6: "timed_out: no answer within 1 s",
        12: "process_died: the process exited with status 3",
    }
    assert len(log.deliveries("orders", "g", state="PUBLISHED")) == 28


@pytest.mark.shows("K16")
def test_a_process_that_dies_between_two_events_counts_no_failure(
    log: penstock.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.engine.isolation.marks import Marks
    from penstock.engine.isolation.process import HandlerProcess

    real, start, killed = HandlerProcess.pump, HandlerProcess.__init__, []
    marks_of: dict[int, Marks] = {}

    def started(self: HandlerProcess, hello: PortableSubscription, marks: Marks) -> None:
        start(self, hello, marks)
        marks_of[self.pid] = marks

    def pump(self: HandlerProcess, seconds: float) -> object:
        answer = real(self, seconds)
        if type(answer).__name__ == "Report" and len(killed) < 2:
            os.kill(self.pid, signal.SIGSTOP)  # it may be inside the next event by now: look while it stands still
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
            if not any(marks_of[self.pid].slots):
                killed.append(self.pid)
                self._child.kill()
            else:
                os.kill(self.pid, signal.SIGCONT)
        return answer

    monkeypatch.setattr(HandlerProcess, "__init__", started)
    monkeypatch.setattr(HandlerProcess, "pump", pump)
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 500)
    run_local_until_drained(log, subscription(handlers.plain))
    assert len(killed) == 2
    shown = log.deliveries("orders", "g")
    assert {str(one.state) for one in shown} == {"PUBLISHED"} and {one.failures for one in shown} == {0}
