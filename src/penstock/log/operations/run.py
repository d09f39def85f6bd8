"""Run operations: take one under a lease of its own, and step until it waits, ends, or the time is up."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from penstock.core import limits
from penstock.core.timeline import SET_BACK
from penstock.log.operations.record import OperationInfo, info
from penstock.log.operations.step import Stepped, step
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction

_LOOK_SECONDS = 0.2  # between two looks of somebody who waits for an operation
_SAID = 200  # characters of an error


class Runner:
    """Runs operations for one open log. Two processes never run the same one: each has a lease, with a token."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def run(self, seconds: float) -> bool:
        """Run what is due for about so long; returns whether there is more to do now."""
        until = time.monotonic() + seconds
        while (number := look(self._store, self._due)) is not None:
            if self.run_one(number, until) is None:
                return False  # somebody else was faster
            if time.monotonic() >= until:
                return True
        return False

    def run_one(self, number: int, until: float) -> Stepped | None:
        """Run one operation until it waits or ends, or until a time; None if it is not due, or somebody runs it."""
        token = transact(self._store, lambda tx: self._take(tx, number))
        if token is None:
            return None
        stepped = Stepped.MORE
        while stepped is Stepped.MORE:
            try:
                stepped = transact(self._store, lambda tx: step(tx, number, token))
            except Exception as error:
                self._put_off(number, token, f"The last step failed: {str(error)[:_SAID]}")
                raise
            if stepped is Stepped.MORE and time.monotonic() >= until:
                transact(self._store, lambda tx: tx.run("operation.leave", id=number, token=token))
                break
        return stepped

    def _put_off(self, number: int, token: int, why: str) -> None:
        """Let the others come first, so that one that cannot be done does not hold them all up."""

        def work(tx: Transaction) -> None:
            later = tx.now() + timedelta(seconds=limits.OPERATION_LOOK_SECONDS)
            tx.run("operation.put_off", id=number, token=token, note=why, next_at=later)

        with suppress(Exception):  # what went wrong first is said
            transact(self._store, work)

    def follow(self, number: int, seen: Callable[[OperationInfo], None], timeout: float | None) -> OperationInfo:
        """Run an operation here until it has ended, or watch whoever runs it; says how far it is now and then."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            stepped = self.run_one(number, time.monotonic() + _LOOK_SECONDS)
            now = info(self._store, number)
            seen(now)
            if now.ended or (until is not None and time.monotonic() >= until):
                return now
            if stepped is not Stepped.MORE:
                time.sleep(_LOOK_SECONDS)

    def _due(self, tx: Transaction) -> int | None:
        row = tx.one("operation.due", now=tx.now(), latest=tx.now() + SET_BACK, me=self._name)
        return None if row is None else int(row.id)

    def _take(self, tx: Transaction, number: int) -> int | None:
        now = tx.now()
        ends: datetime = now + timedelta(seconds=limits.OPERATION_LEASE_SECONDS)
        row = tx.one("operation.take", id=number, me=self._name, now=now, latest=now + SET_BACK, expires_at=ends)
        return None if row is None else int(row.token)
