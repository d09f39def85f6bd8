"""The stored circuit: `Unavailable` in a settle opens it, the success of the one probing lease closes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.core.circuit import next_delay
from penstock.core.group import Group
from penstock.core.lease import Failure, Settled
from penstock.core.observe import CircuitClosed, CircuitOpened
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """A group whose target is down."""

    stream: str
    group: str
    since: datetime
    error: str | None
    error_code: str | None


def opened(store: Store) -> list[OpenCircuit]:
    """Return the groups whose targets are down, first the one that has been so for longest."""
    rows = look(store, lambda tx: tx.rows("circuit.opened"))
    return [OpenCircuit(row.stream, row.group_name, row.opened_at, row.last_error, row.error_code) for row in rows]


def probes(tx: Transaction, group: Group, lease_id: int) -> None:
    """Record that this lease probes the target. Called under the group's lock, so there is one probe at a time."""
    tx.run("circuit.probe", group_id=group.group_id, lease=lease_id)


def settled(
    tx: Transaction, group: Group, lease_id: int, unavailable: Failure | None, answer: Settled, now: datetime
) -> None:
    """Open or close the circuit of a group after a settle.

    Leases claimed before the circuit opened neither close it nor make it wait longer: their information is older.
    A probe that fails for another reason says nothing about the target, so the next one is due at once.
    """
    known = group.circuit
    is_probe = known is not None and known.probe == lease_id
    if unavailable is not None and (known is None or is_probe):
        delay = next_delay(known.delay_seconds if known is not None else 0.0, unavailable.retry_after_seconds)
        tx.run(
            "circuit.open",
            group_id=group.group_id,
            lease=lease_id,
            now=now,
            delay_seconds=delay,
            probe_at=now + timedelta(seconds=delay),
            last_error=unavailable.message,
            error_code=unavailable.code,
        )
        if known is None:
            tx.observed.append(CircuitOpened(f"{group.stream}/{group.group_name}", unavailable.code))
    elif is_probe and answer.published:
        tx.run("circuit.close", group_id=group.group_id, lease=lease_id)
        tx.observed.append(CircuitClosed(f"{group.stream}/{group.group_name}"))
