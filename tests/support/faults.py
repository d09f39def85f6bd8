"""One event of every fault a handler can have, among many good ones."""

from __future__ import annotations

import penstock

# Room enough for a busy machine: the hoarder must be over its memory before its time is up.
LIMITS: dict[str, int] = {"timeout_seconds": 3, "memory_mb": 200}
FAULTS = {
    "raise": "bad amount",
    "permanent": "no such customer",
    "later": "come back",
    "system_exit": "4",
    "interrupt": "KeyboardInterrupt",
    "hang": "timed_out: no answer within 3 s",
    "exit": "process_died: the process exited with status 3",
    "segfault": "process_died: the process was killed by SIGSEGV",
    "kill": "process_died: the process was killed by SIGKILL (out of memory?)",
    "memory": "out_of_memory",
}
EVENTS = 400


def append_with_faults(log: penstock.Log) -> dict[int, str]:
    """Append events of twenty keys, one of every fault among them; return the faults by offset."""
    at = {40 * (place + 1): fault for place, fault in enumerate(FAULTS)}
    log.append_many(
        "orders",
        [
            {"payload": {"n": n, "do": at.get(n)}, "type": "order.created", "ordering_key": f"k{n % 20}"}
            for n in range(EVENTS + 1)
        ],
    )
    return {n + 1: fault for n, fault in at.items()}


def check_only_faults_are_dead(log: penstock.Log, faults: dict[int, str]) -> None:
    """Every fault is DEAD with its own error, and everything else is PUBLISHED."""
    dead = {one.offset: one for one in log.deliveries("orders", "g", state="DEAD")}
    assert dead.keys() == faults.keys()
    for offset, fault in faults.items():
        assert str(dead[offset].last_error).startswith(FAULTS[fault]), (fault, dead[offset].last_error)
        failures = 1 if fault == "permanent" else 2
        assert dead[offset].failures == failures, fault
        # More attempts than failures: released when time was up, or because the head of its key failed.
        assert dead[offset].attempts >= failures, fault
    (stats,) = [one for one in log.stats().groups if one.stream == "orders"]
    assert (stats.published, stats.dead, stats.pending, stats.claimed) == (EVENTS + 1 - len(faults), len(faults), 0, 0)
