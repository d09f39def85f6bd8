"""The operation that somebody plans, starts, watches and stops."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.errors import InvalidInput
from penstock.log.operations import record, start
from penstock.log.operations.plan import Order, Plan, plan
from penstock.log.operations.record import OperationInfo, Progress
from penstock.log.operations.run import Runner
from penstock.stores.base import Store

_LOOK_SECONDS = 0.2


class Operation:
    """A redrive, replay, rewind or purge of many: first a plan, then a stored row that any process runs.

    Engines and `penstock serve` run what is started; so does `run`, in the foreground.
    """

    def __init__(self, store: Store, runner: Runner, order: Order | None, info: OperationInfo | None = None) -> None:
        self._store, self._runner = store, runner
        self._order, self._info = order, info
        self._planned: Plan | None = None

    @property
    def id(self) -> int | None:
        """Its number; None before it is started."""
        return None if self._info is None else self._info.id

    @property
    def info(self) -> OperationInfo:
        """How it was when it was last looked at; see `refresh`."""
        if self._info is None:
            raise InvalidInput("This operation is not started yet.")
        return self._info

    @property
    def progress(self) -> Progress:
        """How far it is now."""
        return self.refresh().progress

    def plan(self) -> Plan:
        """Look what it would move, and up to where; nothing is changed. A start names this plan."""
        if self._order is None or self._info is not None:
            raise InvalidInput(f"Operation {self.id} is started; what it moves is planned already.")
        self._planned = plan(self._store, self._order)
        return self._planned

    def start(self, plan: Plan | None = None) -> Operation:
        """Store it, to be run by whoever does maintenance; without a plan the last one, or one made now.

        `PlanOutdated` if the plan is older than ten minutes, or finds something else now.
        """
        if self._order is None or self._info is not None:
            raise InvalidInput(f"Operation {self.id} is started.")
        number = start.start(self._store, self._order, plan or self._planned or self.plan())
        self._info = record.info(self._store, number)
        return self

    def pause(self, *, by: str | None = None) -> OperationInfo:
        """Move nothing more until `resume`; from any process."""
        return self._keep(start.pause(self._store, self.info.id, by))

    def resume(self, *, by: str | None = None) -> OperationInfo:
        """Go on."""
        return self._keep(start.resume(self._store, self.info.id, by))

    def abort(self, *, by: str | None = None) -> OperationInfo:
        """End it; what was moved stays moved."""
        return self._keep(start.abort(self._store, self.info.id, by))

    def refresh(self) -> OperationInfo:
        """Look how it is now."""
        return self._keep(record.info(self._store, self.info.id))

    def wait(self, timeout: float | None = None) -> OperationInfo:
        """Return when it has ended, or after `timeout` seconds, as it is then. Somebody else runs it; see `run`."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self.refresh().ended and (until is None or time.monotonic() < until):
            time.sleep(_LOOK_SECONDS)
        return self.info

    def run(self, seen: Callable[[OperationInfo], None] | None = None, timeout: float | None = None) -> OperationInfo:
        """Run it here until it has ended, or watch whoever runs it; `seen` is called with how far it is."""
        return self._keep(self._runner.follow(self.info.id, seen or (lambda _: None), timeout))

    def _keep(self, info: OperationInfo) -> OperationInfo:
        self._info = info
        return info
