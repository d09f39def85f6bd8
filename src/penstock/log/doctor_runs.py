"""What the doctor says about those who work on the log: runs that are lost, and services that anybody can overhear."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from urllib.parse import urlsplit

from penstock.core.finding import Finding, Level, duration
from penstock.core.limits import RUN_LOST_SECONDS
from penstock.core.urls import is_loopback
from penstock.stores.base import Transaction

SERVE = "serve"  # the engine of a run that is a service
BEHIND_TLS = " behind TLS"  # at the end of the address of a service that a proxy protects


def lost(tx: Transaction, now: datetime) -> Iterator[Finding]:
    """Name runs that ended without a word: killed, out of memory, or on a machine that is gone."""
    rows = tx.rows("doctor.lost_runs", now=now, lost_seconds=RUN_LOST_SECONDS)
    for row in rows:
        age = duration((now - row.heartbeat_at).total_seconds())
        served = f" for {row.groups}" if row.groups else ""
        what = f"Run {row.id} ({row.name}, {row.engine}){served} has sent no heartbeat for {age}."
        todo = "Start it again if nobody has; `penstock doctor --repair` closes its row."
        yield Finding(Level.NOTE, "runs", what, todo)
    if not rows:
        yield Finding(Level.OK, "runs", "None is lost.")


def exposed(tx: Transaction, now: datetime) -> Iterator[Finding]:
    """Name services that listen on the network and speak plain HTTP."""
    rows = tx.rows("doctor.served", now=now, lost_seconds=RUN_LOST_SECONDS)
    unsafe = [row for row in rows if is_exposed(row.app or "")]
    for row in unsafe:
        who = f"`penstock serve` at {row.app} (run {row.id} on {row.host}, pid {row.pid})"
        what = f"{who} speaks plain HTTP on the network."
        todo = (
            "Tokens and payloads can be read on the way: let it listen on 127.0.0.1, or put a proxy with TLS before it "
            "and start it with --behind-tls."
        )
        yield Finding(Level.PROBLEM, "bind", what, todo)
    if not unsafe:
        yield Finding(Level.OK, "bind", "No service speaks plain HTTP on the network.")


def is_exposed(address: str) -> bool:
    """Whether a service at this address can be overheard.

    >>> [is_exposed(one) for one in ("http://127.0.0.1:8787", "http://0.0.0.0:8787", "http://0.0.0.0:1 behind TLS")]
    [False, True, False]
    """
    if address.endswith(BEHIND_TLS):
        return False
    host = urlsplit(address).hostname
    return host is not None and not is_loopback(host)
