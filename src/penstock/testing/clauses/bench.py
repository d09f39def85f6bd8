"""The environment of a check: a scratch log on a virtual clock, one stream per clause, and plain SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.app import App
from penstock.core.retry import Retry
from penstock.log.deliveries import DeliveryRecord
from penstock.log.lease import Lease
from penstock.log.log import Log
from penstock.log.open import open_log
from penstock.testing.clauses.scratch import scratch_log
from penstock.testing.clock import VirtualClock
from penstock.testing.harness import Harness

PROMPT = Retry(base_seconds=0, jitter=0)  # a failed event is due at once


class Bench:
    """One scratch log for all checks of a run. `begin` gives the next check a new stream."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = VirtualClock()
        self.log: Log = open_log(url, clock=self.clock)
        self.stream = "unused"
        self._checks = 0
        self._raw: Any = None

    def begin(self, name: str) -> None:
        """Start the next check on its own stream."""
        self._checks += 1
        self.stream = f"clause-{name}-{self._checks}"

    def close(self) -> None:
        """Close the log; whoever created the scratch schema removes it."""
        if self._raw is not None:
            self._raw.close()
        self.log.close()

    # --- steps that checks share ---------------------------------------------------------------------------------

    def append(self, payload: Any = None, **fields: Any) -> UUID:
        """Append one event and return its id."""
        body = {"n": 1} if payload is None else payload
        return self.log.append(self.stream, body, **{"type": "order.created", **fields}).event_id

    def group(self, name: str = "g", **settings: Any) -> None:
        """Create a group whose failures are due at once, unless the settings say otherwise."""
        self.log.create_group(self.stream, name, **{"retry": PROMPT, **settings})

    def claim(self, by: str = "relay-1", group: str = "g", limit: int = 100) -> Lease:
        """Claim a lease; the check fails if there is nothing to claim."""
        lease = self.try_claim(by, group, limit)
        assert lease is not None, "nothing was claimable"
        return lease

    def try_claim(self, by: str = "relay-1", group: str = "g", limit: int = 100) -> Lease | None:
        """Claim a lease, or return None."""
        return self.log.claim(self.stream, group, limit=limit, claimed_by=by)

    def fail(self, times: int, group: str = "g", error: Any = "boom") -> None:
        """Claim and fail whatever is due, `times` times in a row."""
        for _ in range(times):
            lease = self.claim(group=group)
            lease.settle(failed={event.event_id: error for event in lease.events})

    def of(self, event_id: UUID, group: str = "g") -> DeliveryRecord:
        """Return the delivery of an event to a group."""
        return self.log.delivery(self.stream, group, event_id)

    def published_as_row(self) -> UUID:
        """Publish an event after one failure, so that its delivery has a row of its own."""
        event = self.append()
        self.group()
        self.fail(1)
        self.clock.advance(1)
        self.claim().settle()
        return event

    def expire(self, lease: Lease) -> None:
        """Advance the clock until a lease has expired, and reap it."""
        self.clock.advance((lease.expires_at - self.clock.now()).total_seconds())
        self.log.reap()

    @contextmanager
    def running(self, app: App) -> Iterator[Harness]:
        """Run the app on this log; its handlers are called when the harness drains."""
        with Harness(app, url=self.url, clock=self.clock) as harness:
            yield harness

    # --- plain SQL -----------------------------------------------------------------------------------------------

    def sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the owner, in autocommit. It is written for PostgreSQL: `penstock.events`, `%s`."""
        statement = self.log.store.in_own_words(statement)
        if self.log.store.kind == "sqlite":
            statement = statement.replace("%s", "?")
            params = tuple(str(one) if isinstance(one, UUID) else one for one in params)
        cursor = self._connection.execute(statement, params)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def refused(self, statement: str, *params: Any) -> None:
        """Fail unless the database refuses the statement."""
        try:
            self.sql(statement, *params)
        except self._refusal:
            return
        raise AssertionError(f"the database accepted: {statement}")

    @property
    def _connection(self) -> Any:
        if self._raw is None:
            self._raw = _connect(self.log, self.url)
        return self._raw

    @property
    def _refusal(self) -> type[Exception]:
        if self.log.store.kind == "sqlite":
            return sqlite3.DatabaseError
        import psycopg

        return psycopg.Error


def _connect(log: Log, url: str) -> Any:
    if log.store.kind == "sqlite":
        return sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=60)
    import psycopg

    from penstock.stores.postgres.store import split_url

    return psycopg.connect(split_url(url)[0], autocommit=True)


@contextmanager
def bench(url: str) -> Iterator[Bench]:
    """Create a bench on a scratch log in the database of `url`, and remove it afterwards."""
    with ExitStack() as stack:
        made = Bench(stack.enter_context(scratch_log(url)))
        stack.callback(made.close)
        yield made


def guarantees() -> str:
    """Return the page that documents the guarantees with their conditions, limits and failure modes."""
    packaged = files("penstock.testing.clauses").joinpath("guarantees.md")
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    return (Path(__file__).parents[4] / "docs" / "guarantees.md").read_text(encoding="utf-8")


def refuses(error: type[Exception], call: Callable[[], Any]) -> None:
    """Fail unless the call raises this error."""
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def immutable(b: Bench, column: str, value: object) -> None:
    """Check that the column cannot be changed, neither of the event nor of its delivery."""
    event = b.published_as_row()
    b.refused(f"update penstock.events set {column} = %s where stream = %s", value, b.stream)
    if column in ("event_id", "event_type", "ordering_key"):
        b.refused(f"update penstock.deliveries set {column} = %s where stream = %s", value, b.stream)
    assert b.of(event).event_id == event
