"""Idle workers wake up by notifications where these arrive, and by polling everywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import penstock
from penstock.declare.subscription import Subscription
from penstock.engine import lookout as looking
from penstock.engine.local.engine import LocalEngine
from tests.support import pgbouncer
from tests.support.declarations import subscription
from tests.support.local_engine import PATIENCE_SECONDS
from tests.support.logs import MakeLog
from tests.support.postgres_server import PostgresServer
from tests.support.raw_sql import raw
from tests.support.waiting import wait_until

NEVER = 3600.0


class Heard:
    """Records what an inline handler was called for."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def subscription(self, **policy: Any) -> Subscription:
        def note(event: penstock.Event) -> None:
            self.offsets.append(event.offset)

        return subscription(note, isolation="inline", **policy)


@contextmanager
def idle_engine(log: penstock.Log, *subscriptions: Subscription) -> Iterator[LocalEngine]:
    """An engine that found nothing to do and waits."""
    engine = LocalEngine(log, subscriptions)
    engine.start()
    try:
        wait_until(lambda: settled_down(engine))
        yield engine
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS)


def settled_down(engine: LocalEngine) -> bool:
    """Whether all workers wait, and the look-out has looked for each of them since."""
    watching = engine.lookout
    waiting = list(watching._waiting)
    now = time.monotonic()
    return len(waiting) == len(engine._workers) and all(one.seen and one.next_look > now for one in waiting)


@pytest.fixture
def never_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first look only a notification can wake a worker."""
    monkeypatch.setattr(looking, "LOOK_FIRST_SECONDS", NEVER)
    monkeypatch.setattr(looking, "LOOK_MOST_SECONDS", NEVER)
    monkeypatch.setattr(looking, "IDLE_CLAIM_SECONDS", NEVER)


@pytest.fixture
def only_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker wakes by time alone."""
    monkeypatch.setattr(looking, "IDLE_CLAIM_SECONDS", NEVER)


def acts(log: penstock.Log) -> dict[str, Callable[[], Any]]:
    """Ways to give an idle worker something to do, on Penstock's own connections."""
    return {
        "append": lambda: log.append("orders", {}, type="t"),
        "append_many": lambda: log.append_many("orders", [{"payload": {}, "type": "t"}] * 3),
        "redrive": lambda: log.redrive("orders", "g", all=True),
        "replay": lambda: log.replay("orders", "g", all=True),
        "rewind": lambda: log.rewind("orders", "g", to="beginning"),
    }


@pytest.mark.shows("J10")
@pytest.mark.parametrize("act", ["append", "append_many", "redrive", "replay", "rewind"])
def test_a_notification_wakes_an_idle_worker(postgres_log_url: str, never_look: None, act: str) -> None:
    heard = Heard()
    with penstock.open(postgres_log_url) as log, penstock.open(postgres_log_url) as other:
        before = prepare(log, heard, act)
        with idle_engine(log, heard.subscription()) as engine:
            assert engine.lookout.listens
            acts(other)[act]()
            wait_until(lambda: len(heard.offsets) > before)
            assert engine.lookout.woke["notified"]


def prepare(log: penstock.Log, heard: Heard, act: str) -> int:
    """Leave one dead letter and one published event; return how many calls the engine makes before it is idle."""
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=2, base_seconds=0, jitter=0))
    if act.startswith("append"):
        return 0
    first = log.append("orders", {}, type="t")
    log.append("orders", {}, type="t")
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    lease.settle(dead={first.event_id: "no"})
    return 0


@pytest.mark.shows("J10")
@pytest.mark.parametrize("act", ["append", "append_many", "redrive", "replay", "rewind"])
def test_an_idle_worker_finds_work_without_notifications(
    log: penstock.Log, make_log: MakeLog, only_look: None, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Without notifications: on PostgreSQL they are not sent, and SQLite has none."""
    other = make_log()
    monkeypatch.setattr("penstock.stores.wake.Seldom.due", lambda self: False)
    heard = Heard()
    before = prepare(log, heard, act)
    with idle_engine(log, heard.subscription()) as engine:
        engine.lookout.woke.clear()
        acts(other)[act]()
        wait_until(lambda: len(heard.offsets) > before)
        assert engine.lookout.woke["polled"] and not engine.lookout.woke["notified"]


@pytest.mark.shows("J10")
def test_a_release_by_another_engine_wakes_an_idle_worker(
    log: penstock.Log, make_log: MakeLog, only_look: None
) -> None:
    heard = Heard()
    log.create_group("orders", "g")
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 3)
    lease = make_log().claim("orders", "g", claimed_by="other")
    assert lease is not None
    with idle_engine(log, heard.subscription()):
        lease.release()
        wait_until(lambda: len(heard.offsets) == 3)


def looks_of(engine: LocalEngine) -> float:
    """A number that grows with every look."""
    return max((one.next_look for one in engine.lookout._waiting), default=0.0)


@pytest.mark.shows("K01")
def test_an_append_in_a_callers_transaction_never_notifies(postgres_log_url: str, only_look: None) -> None:
    heard = Heard()
    with (
        penstock.open(postgres_log_url) as log,
        psycopg.connect(postgres_log_url) as connection,
        idle_engine(log, heard.subscription()) as engine,
    ):
        engine.lookout.woke.clear()
        log.append("orders", {}, type="t", connection=connection)
        looked = looks_of(engine)
        wait_until(lambda: looks_of(engine) > looked + 1)  # the sequence moved, but nothing can be claimed yet
        assert heard.offsets == [] and not engine.lookout.woke
        connection.commit()
        wait_until(lambda: heard.offsets == [1])
        assert engine.lookout.woke["polled"] and not engine.lookout.woke["notified"]


@contextmanager
def listener(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute('listen "penstock.wake"')
        yield connection


def heard_by(connection: psycopg.Connection[Any]) -> int:
    """The notifications so far: those sent before our own arrive before it."""
    connection.execute("notify \"penstock.wake\", 'mine'")
    for count, one in enumerate(connection.notifies(timeout=PATIENCE_SECONDS)):
        if one.payload == "mine":
            return count
    raise AssertionError("our own notification did not arrive")


@pytest.mark.shows("K31")
def test_no_notification_is_sent_while_no_worker_waits(postgres_log_url: str) -> None:
    with penstock.open(postgres_log_url) as log, listener(postgres_log_url) as connection:
        for _ in range(5):
            log.store.wakes._next = 0  # type: ignore[attr-defined]
            log.append("orders", {}, type="t")
        assert heard_by(connection) == 0
        sight = log.store.sight()
        sight.expect(True)
        log.store.wakes._next = 0  # type: ignore[attr-defined]
        log.append("orders", {}, type="t")
        assert heard_by(connection) == 1
        sight.expect(False)
        log.store.wakes._next = 0  # type: ignore[attr-defined]
        log.append("orders", {}, type="t")
        assert heard_by(connection) == 0
        sight.close()


@pytest.mark.shows("K31")
def test_a_burst_of_appends_sends_few_notifications(postgres_log_url: str) -> None:
    with penstock.open(postgres_log_url) as log, listener(postgres_log_url) as connection:
        sight = log.store.sight()
        sight.expect(True)
        log.store.wakes._seconds = NEVER  # type: ignore[attr-defined]
        for _ in range(20):
            log.append("orders", {}, type="t")
        assert heard_by(connection) == 1
        sight.close()


@pytest.mark.shows("K40")
def test_a_foreign_lock_does_not_stop_notifications(postgres_log_url: str, never_look: None) -> None:
    heard = Heard()
    with psycopg.connect(postgres_log_url, autocommit=True) as stranger, penstock.open(postgres_log_url) as log:
        stranger.execute("select pg_advisory_lock('penstock.runs'::regclass::oid::int, 1)")
        with idle_engine(log, heard.subscription()):
            log.append("orders", {}, type="t")
            wait_until(lambda: heard.offsets == [1])


@pytest.mark.shows("J10", "K42")
def test_the_look_out_listens_again_after_its_connection_was_cut(postgres_log_url: str) -> None:
    heard = Heard()
    with (
        penstock.open(postgres_log_url) as log,
        raw(postgres_log_url) as sql,
        idle_engine(log, heard.subscription()) as engine,
    ):
        first = engine.lookout._sight
        cut = sql(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity "
            "where application_name = 'penstock look-out' and datname = current_database()"
        )
        assert cut == [(1,)]
        wait_until(lambda: engine.lookout._sight not in (None, first) and engine.lookout.listens)
        log.append("orders", {}, type="t")
        wait_until(lambda: heard.offsets == [1])


@pytest.mark.shows("K34", "J10")
@pytest.mark.skipif(pgbouncer.find() is None, reason="pgbouncer is not installed")
def test_a_look_out_only_polls_through_pgbouncer(postgres: PostgresServer, postgres_log_url: str) -> None:
    """LISTEN and locks would stay with a server session that PgBouncer gives to another client."""
    heard = Heard()
    with pgbouncer.PgBouncer(postgres) as bouncer:
        url = bouncer.url(postgres_log_url.rpartition("/")[2])
        with penstock.open(url) as log, idle_engine(log, heard.subscription()) as engine:
            assert not engine.lookout.listens
            log.append("orders", {}, type="t")
            wait_until(lambda: heard.offsets == [1])
            with raw(postgres_log_url) as sql:
                held = sql(
                    "select count(*) from pg_locks where locktype = 'advisory' and objid = 1 "
                    "and classid = 'penstock.runs'::regclass::oid "
                    "and database = (select oid from pg_database where datname = current_database())"
                )
                assert held == [(0,)]


@pytest.mark.shows("J10", "K34")
@pytest.mark.skipif(pgbouncer.find() is None, reason="pgbouncer is not installed")
def test_an_append_through_pgbouncer_wakes_a_listening_engine(
    postgres: PostgresServer, postgres_log_url: str, never_look: None
) -> None:
    heard = Heard()
    with pgbouncer.PgBouncer(postgres) as bouncer, penstock.open(postgres_log_url) as log:
        url = bouncer.url(postgres_log_url.rpartition("/")[2])
        with idle_engine(log, heard.subscription()), penstock.open(url) as other:
            other.append("orders", {}, type="t")
            wait_until(lambda: heard.offsets == [1])


@pytest.mark.shows("K38")
def test_many_groups_have_one_look_out(log: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread looks for all groups, and one look serves all of them."""
    heard = [Heard() for _ in range(6)]
    groups = [one.subscription(group=f"g{number}") for number, one in enumerate(heard)]
    with idle_engine(log, *groups) as engine:
        assert sum(thread.name == "penstock-look-out" for thread in threading.enumerate()) == 1
        assert engine.lookout._thread.is_alive()
        log.append("orders", {}, type="t")
        wait_until(lambda: all(one.offsets == [1] for one in heard))


@pytest.mark.shows("K20")
def test_an_idle_worker_wakes_when_something_is_due(log: penstock.Log, only_look: None) -> None:
    from datetime import UTC, datetime, timedelta

    heard = Heard()
    log.append("orders", {}, type="t", available_at=datetime.now(UTC) + timedelta(seconds=1))
    with idle_engine(log, heard.subscription()) as engine:
        wait_until(lambda: heard.offsets == [1])
        assert engine.lookout.woke["due"]


class Claims:
    """Count the claims of a log."""

    def __init__(self, log: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        claim = log.try_claim_unread

        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            return claim(*args, **options)

        monkeypatch.setattr(log, "try_claim_unread", counted)


@pytest.mark.shows("J10", "K31")
@pytest.mark.parametrize("policy", [{}, {"ordering": "key"}, {"keyed": True}], ids=["plain", "ordered", "keyed"])
def test_a_single_event_costs_two_claims(
    log: penstock.Log, only_look: None, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any]
) -> None:
    """One finds it, one finds nothing more, whether the second runs during the settle or after it."""
    heard, claims = Heard(), Claims(log, monkeypatch)
    with idle_engine(log, heard.subscription(**policy)) as engine:
        claims.count = 0
        for number in range(1, 6):
            log.append("orders", {}, type="t", ordering_key="k")
            wait_until(lambda n=number: len(heard.offsets) == n and settled_down(engine))  # type: ignore[misc]
        assert claims.count <= 2 * 5 + 1, "more than one extra claim"


@pytest.mark.shows("J10", "K20")
def test_events_released_by_a_settle_are_claimed_at_once(log: penstock.Log, never_look: None) -> None:
    """Only the worker itself can know: it neither polls nor is notified."""
    called: list[int] = []

    def fails_twice(event: penstock.Event) -> None:
        called.append(event.attempts)
        if len(called) < 3:
            raise ValueError("not yet")

    log.append("orders", {}, type="t")
    retry = penstock.Retry(max_attempts=5, base_seconds=0, jitter=0)
    with idle_engine(log, subscription(fails_twice, isolation="inline", retry=retry)):
        wait_until(lambda: len(called) == 3)
    assert called == [1, 2, 3]
