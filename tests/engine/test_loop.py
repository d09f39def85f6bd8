"""The worker's loop: progress, stopping, heartbeats, order, and what ends a group's work."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.core import circuit, limits
from penstock.engine.local.engine import LocalEngine
from tests.support.children import handlers
from tests.support.declarations import RETRY_AT_ONCE, subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.log_steps import count_published
from tests.support.notes import read_notes
from tests.support.raw_sql import raw
from tests.support.running import PYTHONPATH
from tests.support.waiting import wait_until

SLOW = 0.02


@pytest.mark.shows("K17")
@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_a_slow_handlers_finished_events_are_settled_before_the_rest(log: penstock.Log, isolation: str) -> None:
    """The first lease takes twelve times too long: finished events are settled, the rest is released as a range."""
    log.append_many("orders", [{"payload": {"seconds": SLOW}, "type": "t"}] * 64)
    engine = LocalEngine(log, [subscription(handlers.slow, batch_seconds=0.1, isolation=isolation)])
    engine.start()
    wait_until(lambda: count_published(log) > 0)
    assert count_published(log) < 40
    engine.stop()
    engine.wait(PATIENCE_SECONDS)
    rows = log.deliveries("orders", "g")
    assert {str(one.state) for one in rows} == {"PUBLISHED", "PENDING"} and {one.failures for one in rows} == {0}
    assert {one.reason for one in rows if one.state == "PENDING"} <= {"released", None}
    run_local_until_drained(log, subscription(handlers.slow, batch_seconds=0.1, isolation=isolation))
    assert count_published(log) == 64


@pytest.mark.shows("K17")
def test_a_killed_engine_repeats_only_its_last_lease(log: penstock.Log, log_url: str, notes: Path) -> None:
    count = 150
    log.append_many("orders", [{"payload": {"seconds": 0.01}, "type": "t"}] * count)
    script = textwrap.dedent(
        f"""
        import penstock
        from penstock.engine.local.engine import LocalEngine
        from tests.support.children import handlers
        from tests.support.declarations import subscription
        with penstock.open({log_url!r}) as log:
            engine = LocalEngine(log, [subscription(handlers.slow, batch_seconds=0.1, lease_seconds=4)])
            engine.start()
            engine.wait()
        """
    )
    worker = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": PYTHONPATH})
    try:
        wait_until(lambda: count_published(log) >= 60)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    run_local_until_drained(log, subscription(handlers.slow, batch_seconds=0.1, lease_seconds=4))
    assert count_published(log) == count
    again = [
        offset for offset, calls in Counter(o for o, what in read_notes(notes) if what == "end").items() if calls > 1
    ]
    assert len(again) <= 40, "more than one lease and one prefetched lease were repeated"


@pytest.mark.shows("K17", "K13")
def test_a_graceful_stop_counts_no_failure(log: penstock.Log, notes: Path) -> None:
    log.append_many("orders", [{"payload": {"seconds": SLOW}, "type": "t"}] * 200)
    engine = LocalEngine(log, [subscription(handlers.slow, batch_seconds=60)])
    engine.start()
    wait_until(lambda: len(read_notes(notes)) >= 10)
    engine.stop()
    assert engine.wait(PATIENCE_SECONDS)
    begun = {offset for offset, what in read_notes(notes) if what == "begin"}
    ended = {offset for offset, what in read_notes(notes) if what == "end"}
    assert begun == ended, "running handlers must finish"
    assert count_published(log) == len(ended) < 200
    with raw(log.store.url) as sql:
        assert sql("select count(*) from penstock.deliveries") == [(0,)], (
            "events that were not started must come back as a range"
        )
        assert sql("select count(*) from penstock.leases where outcome is null") == [(0,)]
    assert {one.failures for one in log.deliveries("orders", "g")} == {0}
    run_local_until_drained(log, subscription(handlers.slow, batch_seconds=60))
    assert count_published(log) == 200
    assert Counter(offset for offset, what in read_notes(notes) if what == "end").most_common(1)[0][1] == 1


@pytest.mark.shows("K16")
@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_a_long_handler_keeps_its_lease(log_url: str, notes: Path, isolation: str) -> None:
    with penstock.open(log_url) as one, penstock.open(log_url) as two:
        one.append("orders", {"seconds": 2.5}, type="t")
        engines = [
            LocalEngine(log, [subscription(handlers.slow, lease_seconds=1, isolation=isolation)], until_drained=True)
            for log in (one, two)
        ]
        for engine in engines:
            engine.start()
        assert all(engine.wait(PATIENCE_SECONDS) for engine in engines)
        assert read_notes(notes) == [["1", "begin"], ["1", "end"]]
        assert one.delivery("orders", "g", 1).attempts == 1


@pytest.mark.shows("K26", "S01")
def test_ten_solo_deaths_without_a_success_pause_the_group(log: penstock.Log) -> None:
    log.append_many("orders", [{"payload": {"do": "exit"}, "type": "t"}] * 30)
    log.append("orders", {}, type="t")
    engine = run_local_until_drained(
        log, subscription(handlers.plain, batch_size=1, retry=penstock.Retry(max_attempts=5, base_seconds=0))
    )
    assert engine.paused["orders/g"].startswith("crash_loop: 10 events in a row")
    (group,) = log.groups("orders")
    assert group.paused and group.pause_reason == engine.paused["orders/g"]
    assert len(log.deliveries("orders", "g", state="DEAD")) == 0, "logged too often"
    with raw(log.store.url) as sql:
        ((reason,),) = sql("select detail from penstock.audit where action = 'pause'")
        assert "crash_loop" in str(reason)


@pytest.mark.shows("K26")
def test_deaths_with_successes_between_them_do_not_pause(log: penstock.Log) -> None:
    log.append_many("orders", [{"payload": {"do": "exit" if n % 2 else None}, "type": "t"} for n in range(24)])
    engine = run_local_until_drained(log, subscription(handlers.plain, batch_size=4))
    assert engine.paused == {} and len(log.deliveries("orders", "g", state="DEAD")) == 12 > limits.SOLO_DEATHS


@pytest.mark.shows("K26")
def test_a_resumed_group_is_paused_after_ten_more_deaths(log: penstock.Log) -> None:
    log.append_many("orders", [{"payload": {"do": "exit"}, "type": "t"}] * 30)
    poor = subscription(handlers.plain, batch_size=1, retry=penstock.Retry(max_attempts=2, base_seconds=0))
    assert run_local_until_drained(log, poor).paused
    deaths = sum(one.failures for one in log.deliveries("orders", "g"))
    log.resume("orders", "g")
    assert run_local_until_drained(log, poor).paused
    assert sum(one.failures for one in log.deliveries("orders", "g")) >= deaths + limits.SOLO_DEATHS


@pytest.mark.shows("K19", "K28")
def test_without_order_a_failing_event_delays_nobody(log: penstock.Log, log_url: str) -> None:
    create_done_table(log_url)
    log.append_many("orders", [{"payload": {"times": 3 if n == 0 else 0}, "type": "t"} for n in range(100)])
    retry = penstock.Retry(max_attempts=5, base_seconds=0.05, factor=1, jitter=0)
    run_local_until_drained(log, subscription(handlers.sometimes, keyed=False, retry=retry))
    assert sorted(done_offsets(log_url)) == list(range(1, 101))
    assert {one.attempts for one in log.deliveries("orders", "g") if one.offset > 1} == {1}


@pytest.mark.shows("K18", "K36")
def test_a_lease_ends_early_when_many_of_its_events_wait_for_one_key(log: penstock.Log, log_url: str) -> None:
    """Every waiting event becomes a row; events not yet started are released as a range."""
    create_done_table(log_url)
    failing = 700  # in the third lease, which is long enough
    log.append_many(
        "orders",
        [
            {"payload": {"times": int(n == failing)}, "type": "t", "ordering_key": ("ada", "bob")[n % 2]}
            for n in range(3_000)
        ],
    )
    run_local_until_drained(log, subscription(handlers.sometimes, ordering="key", lanes=1))
    for key in (0, 1):
        assert [n for n in done_offsets(log_url) if n % 2 == key] == [n for n in range(1, 3_001) if n % 2 == key]
    with raw(log_url) as sql:
        ((rows,),) = sql("select count(*) from penstock.deliveries")
    assert abs(rows - limits.HELD_PER_LEASE) <= 2


@pytest.mark.shows("K18", "X07")
@pytest.mark.parametrize("on_dead", ["continue", "halt"])
def test_order_by_key_holds_with_failures_deaths_and_two_engines(log_url: str, on_dead: str) -> None:
    create_done_table(log_url)
    dice = random.Random(7)
    keys = [f"k{dice.randrange(12)}" for _ in range(150)]
    payloads = [
        {"times": dice.choice([0] * 12 + [1, 2, 9]), "do": dice.choice(["raise", "raise", "exit"])} for _ in keys
    ]
    policy = {"ordering": "key", "on_dead": on_dead, "batch_size": 40, "retry": penstock.Retry(4, 0.01, 1, 1, 0)}
    with penstock.open(log_url) as one, penstock.open(log_url) as two:
        one.append_many(
            "orders",
            [{"payload": what, "type": "t", "ordering_key": key} for what, key in zip(payloads, keys, strict=True)],
        )
        engines = [
            LocalEngine(log, [subscription(handlers.sometimes, **policy)], until_drained=True) for log in (one, two)
        ]
        for engine in engines:
            engine.start()
        assert all(engine.wait(100) for engine in engines)
        order = done_offsets(log_url)
        dead = {delivery.offset for delivery in one.deliveries("orders", "g", state="DEAD")}
    assert len(order) == len(set(order))
    for key in set(keys):
        mine = [offset for offset, its in enumerate(keys, 1) if its == key]
        first_dead = next((offset for offset in mine if offset in dead), None)
        reached = [o for o in mine if o not in dead and (on_dead == "continue" or not first_dead or o < first_dead)]
        assert [offset for offset in order if keys[offset - 1] == key] == reached
    assert dead == {
        offset
        for offset, what in enumerate(payloads, 1)
        if what["times"] == 9 and (on_dead == "continue" or offset in dead)
    }


@pytest.mark.shows("K18")
def test_concurrent_handlers_of_one_key_take_turns(log: penstock.Log, notes: Path) -> None:
    log.append_many(
        "orders", [{"payload": {"seconds": 0.005}, "type": "t", "ordering_key": f"k{n % 4}"} for n in range(60)]
    )
    run_local_until_drained(log, subscription(handlers.slow, ordering="key", concurrency=8, lanes=1))
    running: set[int] = set()
    most = 0
    for offset, what in read_notes(notes):
        key = int(offset) % 4
        if what == "begin":
            assert key not in running
            running.add(key)
        else:
            running.remove(key)
        most = max(most, len(running))
    assert most > 1, "different keys must run concurrently"


@pytest.mark.parametrize("handler", [handlers.slow, handlers.slow_async])
def test_concurrency_is_used_and_never_exceeded(log: penstock.Log, notes: Path, handler: object) -> None:
    log.append_many("orders", [{"payload": {"seconds": 0.01}, "type": "t"}] * 60)
    run_local_until_drained(log, subscription(handler, concurrency=5))  # type: ignore[arg-type]
    running = most = 0
    for _, what in read_notes(notes):
        running += 1 if what == "begin" else -1
        most = max(most, running)
    assert most == 5 and running == 0


@pytest.mark.shows("K13")
def test_an_unavailable_target_opens_the_circuit(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit, "CIRCUIT_FIRST_SECONDS", 0.02)
    monkeypatch.setattr(circuit, "CIRCUIT_MOST_SECONDS", 0.05)
    down = tmp_path / "down"
    down.touch()
    monkeypatch.setenv("PENSTOCK_DOWN", str(down))
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 50)
    engine = LocalEngine(log, [subscription(handlers.unavailable)], until_drained=True)
    engine.start()
    wait_until(lambda: len(read_notes(notes)) >= 4)
    down.unlink()
    assert engine.wait(PATIENCE_SECONDS)
    shown = log.deliveries("orders", "g")
    assert {str(one.state) for one in shown} == {"PUBLISHED"} and {one.failures for one in shown} == {0}
    with raw(log.store.url) as sql:
        sizes = [members for (members,) in sql("select members from penstock.leases order by id")]
    assert sizes[1] == sizes[2] == 1, "an open circuit must probe with one event"
    (group,) = log.groups("orders")
    assert group.circuit is None, "a successful probe must close the circuit"


@pytest.mark.shows("K13")
def test_a_retried_event_is_dead_when_it_reaches_max_age(log: penstock.Log) -> None:
    log.append("orders", {"do": "raise"}, type="t")
    retry = penstock.Retry(max_attempts=1000, base_seconds=0.001, factor=1, jitter=0, max_age_seconds=0.3)
    run_local_until_drained(log, subscription(handlers.plain, retry=retry))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert 1 <= dead.failures < 1000


def test_several_handlers_share_a_group_and_the_first_match_handles(log: penstock.Log, notes: Path) -> None:
    seen: list[tuple[str, str]] = []
    app = penstock.App(log.store.url)
    for name, types in (("created", ["order.created"]), ("orders", ["order.*"])):

        def handle(event: penstock.Event, name: str = name) -> None:
            seen.append((name, event.event_type))

        app.subscribe("orders", group="g", types=types, isolation="inline")(handle)
    for kind in ("order.created", "order.paid", "mail.sent"):
        log.append("orders", {}, type=kind)
    run_local_until_drained(log, *app.subscriptions)
    assert seen == [("created", "order.created"), ("orders", "order.paid")]
    assert len(log.deliveries("orders", "g")) == 2


def test_an_event_without_a_matching_handler_is_dead(log: penstock.Log) -> None:
    log.append("orders", {}, type="order.created")
    log.create_group("orders", "g", retry=RETRY_AT_ONCE)
    log.bind("orders", "g", types=["order.paid"])  # applies to later events only
    run_local_until_drained(log, subscription(handlers.plain, types=["order.paid"]))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert dead.error_code == "Permanent" and "no handler" in str(dead.last_error)


@pytest.mark.shows("K20")
def test_until_drained_does_not_wait_for_delayed_and_halted_events(log: penstock.Log, log_url: str) -> None:
    import datetime

    create_done_table(log_url)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    log.append("orders", {}, type="t", ordering_key="a", available_at=later)
    log.append("orders", {}, type="t", ordering_key="a")
    log.append("orders", {"times": 9}, type="t", ordering_key="b")
    log.append("orders", {}, type="t", ordering_key="b")
    log.append("orders", {}, type="t", ordering_key="c")
    run_local_until_drained(log, subscription(handlers.sometimes, ordering="key", on_dead="halt"))
    assert done_offsets(log_url) == [5]
    assert Counter(str(one.state) for one in log.deliveries("orders", "g")) == {"PENDING": 3, "DEAD": 1, "PUBLISHED": 1}
