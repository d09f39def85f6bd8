"""An engine ends only on request: whatever happens to its connections, it waits, logs it, and continues."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import penstock
from penstock.core.observe import Observers
from penstock.engine.counters import Counters
from penstock.engine.local.engine import LocalEngine
from penstock.engine.outage import Outage, patiently
from penstock.errors import AWAY, CommitUnknown, StoreReadOnly, StoreUnavailable
from tests.support.children import handlers
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.declarations import subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.local_engine import PATIENCE_SECONDS
from tests.support.postgres_server import PostgresServer
from tests.support.roles import worker_role
from tests.support.waiting import wait_until

EVENTS = 600  # too many to be returned with the claim
PATIENT = penstock.Retry(max_attempts=50, base_seconds=0, jitter=0)


@contextmanager
def engine_on(log: penstock.Log, **policy: Any) -> Iterator[LocalEngine]:
    """An engine that runs until the test stops it; the test fails if it ends earlier."""
    settings = {"isolation": "inline", "lease_seconds": 1.0, "retry": PATIENT, **policy}
    engine = LocalEngine(log, [subscription(handlers.counting, **settings)])
    engine.start()
    try:
        yield engine
        assert not engine.wait(0), "the engine ended by itself"
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS)


def wait_for_effects(url: str, count: int) -> None:
    """Wait until this many effects are committed."""
    with psycopg.connect(url, autocommit=True) as connection:
        wait_until(lambda: (connection.execute("select count(*) from done").fetchone() or (0,))[0] >= count)


def check_once(log: penstock.Log, url: str, events: int) -> None:
    """Every effect of every event happened exactly once."""
    assert sorted(done_offsets(url)) == sorted(event.offset for event in log.read("orders", limit=10_000))
    assert len(done_offsets(url)) == events
    emitted = Counter(event.json()["offset"] for event in log.read("seen", limit=10_000))
    assert len(emitted) == events and set(emitted.values()) == {1}
    keys = {event.ordering_key for event in log.read("orders", limit=10_000)}
    assert sum(log.state("orders", "g", str(key))["seen"] for key in keys) == events


@pytest.mark.shows("K42")
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_connection_cut_at_any_statement_loses_nothing(
    postgres: PostgresServer, postgres_log: penstock.Log, postgres_log_url: str, how: Cut
) -> None:
    create_done_table(postgres_log_url)
    with CuttingProxy(postgres.port) as proxy, penstock.open(proxy.url(postgres_log_url)) as log, engine_on(log):
        for number in range(1, 31):
            proxy.cut_at(number, how)
            postgres_log.append("orders", {"n": number}, type="t", ordering_key=f"k{number % 3}")
            assert proxy.cut.wait(PATIENCE_SECONDS)
            wait_for_effects(postgres_log_url, number)
        assert len(proxy.cuts) == 30
    check_once(postgres_log, postgres_log_url, 30)


@pytest.mark.shows("K42")
@pytest.mark.parametrize("how", ["before", "after"])
def test_connections_cut_at_every_second_commit_lose_nothing(
    postgres: PostgresServer, postgres_log: penstock.Log, postgres_log_url: str, how: Cut
) -> None:
    create_done_table(postgres_log_url)
    commits = 0

    def decide(statement: str) -> Cut | None:
        nonlocal commits
        commits += statement == "commit"
        return how if statement == "commit" and commits % 2 else None

    with (
        CuttingProxy(postgres.port) as proxy,
        penstock.open(proxy.url(postgres_log_url)) as log,
        engine_on(log, lease_seconds=3.0),
    ):
        proxy.cut_when(decide)
        for n in range(4):
            postgres_log.append("orders", {"n": n}, type="t", ordering_key=f"k{n % 3}")
            wait_for_effects(postgres_log_url, n + 1)
        proxy.cut_when(lambda statement: None)
        assert len(proxy.cuts) >= 4 and set(proxy.cuts) == {"commit"}
    check_once(postgres_log, postgres_log_url, 4)


@pytest.mark.shows("K42")
def test_a_connection_cut_while_reading_a_lease_does_not_claim_another(
    postgres: PostgresServer, postgres_log: penstock.Log, postgres_log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claimed lease is read again; no other lease is claimed and left to expire."""
    create_done_table(postgres_log_url)
    reading = False

    def decide(statement: str) -> Cut | None:
        nonlocal reading
        if not proxy.cut.is_set() and reading and statement in ("commit", "rollback"):
            return "before"
        reading = reading or "payload" in statement
        return None

    postgres_log.append_many("orders", [{"payload": {}, "type": "t", "ordering_key": "k"}] * EVENTS)
    with CuttingProxy(postgres.port) as proxy, penstock.open(proxy.url(postgres_log_url)) as log:
        proxy.cut_when(decide)
        monkeypatch.setattr("penstock.engine.pace.FIRST_LEASE", EVENTS)
        with engine_on(log, lease_seconds=3600):
            wait_for_effects(postgres_log_url, EVENTS)
            assert proxy.cut.is_set()
    check_once(postgres_log, postgres_log_url, EVENTS)
    shown = postgres_log.deliveries("orders", "g")
    assert {(one.attempts, one.failures) for one in shown} == {(1, 0)}


@pytest.mark.shows("K42")
def test_no_verb_raises_a_raw_driver_error_after_a_cut(
    postgres: PostgresServer, postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    """Wherever the connection is cut, verbs raise Penstock's own errors."""
    verbs = {
        "append": lambda log: log.append("orders", {}, type="t"),
        "append_many": lambda log: log.append_many("orders", [{"payload": {}, "type": "t"}] * 3),
        "read": lambda log: log.read("orders"),
        "declare": lambda log: log.declare_group("orders", "g"),
        "drained": lambda log: log.drained("orders", "g"),
        "stats": lambda log: log.stats(),
        "reap": lambda log: log.reap(),
        "claim": lambda log: log.claim("orders", "g", claimed_by="w"),
        "deliveries": lambda log: log.deliveries("orders", "g"),
    }
    postgres_log.create_group("orders", "g")
    seen: Counter[str] = Counter()
    with CuttingProxy(postgres.port) as proxy, penstock.open(proxy.url(postgres_log_url)) as log:
        for name, verb in verbs.items():
            for how in ("before", "after"):
                for number in range(1, 12):
                    proxy.cut_at(number, how)
                    try:
                        verb(log)
                    except AWAY as error:
                        seen[name] += 1
                        assert error.code and error.hint
                    if not proxy.cut.is_set():
                        break
    assert seen.keys() == verbs.keys()


@pytest.mark.shows("K42")
@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_server_restart_loses_nothing(end: str, caplog: pytest.LogCaptureFixture) -> None:
    with PostgresServer() as server:
        url = server.create_database()
        with penstock.open(url) as log, caplog.at_level(logging.WARNING, "penstock"):
            create_done_table(url)
            with engine_on(log, lease_seconds=2.0):
                log.append("orders", {}, type="t", ordering_key="k")
                wait_for_effects(url, 1)
                if end == "kill":
                    server.kill()
                    server.start()
                else:
                    server.restart()
                with penstock.open(url) as fresh:
                    fresh.append("orders", {}, type="t", ordering_key="k")
                    wait_for_effects(url, 2)
                    check_once(fresh, url, 2)
    waits = [one for one in caplog.messages if "waiting for the database" in one]
    assert len(waits) <= 3, waits


@pytest.mark.shows("K42")
def test_sessions_that_ended_while_they_were_idle_cost_no_wait(
    postgres_log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart ends every session of the pool. The next call discards them one after the other without waiting: its
    patience here is shorter than one wait per session."""
    monkeypatch.setattr("penstock.stores.postgres.store.BUSY_SECONDS", 2.0)
    with penstock.open(postgres_log_url) as log:
        together = threading.Barrier(6)

        def hold() -> None:
            with log.store.transaction() as tx:  # type: ignore[attr-defined]
                tx.now()
                together.wait(PATIENCE_SECONDS)

        threads = [threading.Thread(target=hold) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        name = postgres_log_url.rpartition("/")[2]
        ending = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity where datname = %s"
        with psycopg.connect(postgres_log_url.replace(name, "postgres"), autocommit=True) as server:
            ended = server.execute(ending, (name,)).fetchone()
        assert ended is not None and ended[0] >= 6
        log.append("orders", {}, type="t")
        assert log.stats("orders").streams[0].events == 1


@pytest.mark.shows("K42")
def test_an_engine_waits_for_a_read_only_server(
    postgres_log: penstock.Log, postgres_log_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_done_table(postgres_log_url)
    name = postgres_log_url.rpartition("/")[2]

    def switch(how: str) -> None:
        with psycopg.connect(postgres_log_url.replace(name, "postgres"), autocommit=True) as owner:
            owner.execute(f"alter database {name} set default_transaction_read_only = {how}")
            owner.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))

    with caplog.at_level(logging.WARNING, "penstock"), penstock.open(postgres_log_url) as log, engine_on(log) as engine:
        switch("on")
        wait_until(lambda: any("store_read_only" in one for one in caplog.messages))
        with penstock.open(postgres_log_url) as other:
            for refused in (
                lambda: other.append("orders", {}, type="t"),
                lambda: other.append_many("orders", [{"payload": {}, "type": "t"}]),
                lambda: other.pause("orders", "g"),
                lambda: other.claim("orders", "g", claimed_by="w"),
            ):
                with pytest.raises(StoreReadOnly):
                    refused()
            assert other.read("orders") == [] and other.stats().groups
        assert not engine.wait(0)
        switch("off")
        with penstock.open(postgres_log_url) as other:
            other.append("orders", {}, type="t", ordering_key="k")
            wait_for_effects(postgres_log_url, 1)
            check_once(other, postgres_log_url, 1)


@pytest.mark.shows("K42")
@pytest.mark.parametrize("verb", ["append_many", "append", "reap", "claim"])
def test_a_transaction_that_the_server_ends_while_idle_writes_nothing(
    postgres_log_url: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The server ends a transaction that is idle for too long: nothing is written, and the error says so."""
    from penstock.stores.postgres import transaction

    monkeypatch.setattr(transaction, "_SETTINGS", transaction._SETTINGS.replace("'10s'", "'50ms'"))
    slept = False

    def hook(when: str, block: str) -> None:
        nonlocal slept
        if (when, block) != ("before", "commit") or slept:
            return
        slept = True
        with psycopg.connect(postgres_log_url) as other:
            wait_until(lambda: not _sleepers(other))

    with penstock.open(postgres_log_url) as before:
        before.create_group("orders", "g")
        before.append("orders", {}, type="t")
    with penstock.open(postgres_log_url, hook=hook) as log:
        verbs = {
            "append_many": lambda: log.append_many("orders", [{"payload": {}, "type": "t"}]),
            "append": lambda: log.append("orders", {}, type="t"),
            "reap": log.reap,
            "claim": lambda: log.claim("orders", "g", claimed_by="w"),
        }
        with pytest.raises(StoreUnavailable) as caught:
            verbs[verb]()
        assert slept and "idle-in-transaction" in caught.value.message
        verbs[verb]()
        assert len(log.read("orders")) == (2 if verb.startswith("append") else 1)


def _sleepers(connection: psycopg.Connection[Any]) -> bool:
    found = connection.execute(
        "select 1 from pg_stat_activity where datname = current_database() and application_name = 'penstock' "
        "and state = 'idle in transaction'"
    ).fetchone()
    connection.rollback()
    return found is not None


@pytest.mark.shows("K42")
def test_too_many_connections_are_reported(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with worker_role(postgres_log_url) as (url, owner):
        owner.execute(f"alter role {url.partition('//')[2].partition('@')[0]} connection limit 0")
        with pytest.raises(StoreUnavailable, match="too many connections"):
            penstock.open(url)


def test_an_outage_is_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = Outage(lambda: now)
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(100):
            outage.goes_on("orders/g", StoreUnavailable("Gone."))
            now += 1.0
        outage.is_over("orders/g")
        outage.is_over("orders/h")
        assert patiently(lambda: 7, "orders/g", Observers(), threading.Event(), outage) == 7
    assert len(caplog.messages) == 5
    assert "waiting for the database" in caplog.messages[0] and "back after 100.0 s" in caplog.messages[-1]


def test_an_unknown_commit_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [CommitUnknown(), StoreReadOnly("No."), "done"]

    def do() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    counters = Counters()
    assert patiently(do, "orders/g", Observers(counters), threading.Event(), Outage()) == "done"
    assert counters.snapshot()["store_errors"] == 2
