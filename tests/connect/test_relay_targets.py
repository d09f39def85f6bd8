"""The relay with real targets: crashes, outages, slow answers, order by key, and several groups."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import penstock
from penstock.connect import Valkey, Webhook
from penstock.engine.local.engine import LocalEngine
from penstock.testing import StatementCounter, VirtualClock
from tests.support.forks import killed_in_child
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.log_steps import append_orders, count_by_state
from tests.support.logs import MakeLog
from tests.support.relay_targets import relay_target
from tests.support.server_process import free_port
from tests.support.valkey_server import ValkeyServer
from tests.support.waiting import wait_until
from tests.support.webhook_target import Reply, Request, WebhookTarget

targets = pytest.mark.parametrize("kind", ["valkey", "nats", "webhook"])
MANY_AT_ONCE = penstock.Retry(max_attempts=50, base_seconds=0, jitter=0)


def app_of(publisher: Any, group: str = "g", **options: Any) -> penstock.App:
    app = penstock.App(name="shop")
    app.publish("orders", group=group, publisher=publisher, **options)
    return app


@contextmanager
def running(log: penstock.Log, *apps: penstock.App) -> Iterator[None]:
    engines = [LocalEngine(log, app.subscriptions) for app in apps]
    for engine in engines:
        engine.start()
    try:
        yield
    finally:
        for engine in engines:
            engine.stop()
        for engine in engines:
            engine.wait(PATIENCE_SECONDS)


def no_failure(log: penstock.Log, group: str = "g") -> bool:
    found = log.deliveries("orders", group, limit=10_000)
    return {(str(one.state), one.failures) for one in found} == {("PUBLISHED", 0)}


@pytest.mark.shows("R02", "X02")
@targets
def test_a_relay_killed_between_publish_and_settle_publishes_again_with_the_same_id_and_bytes(
    make_log: MakeLog, clock: VirtualClock, log_url: str, kind: str
) -> None:
    log = make_log(clock=clock)
    ids = {str(one) for one in append_orders(log, 20)}
    with relay_target(kind) as target:

        def kill_before_settle(when: str, block: str) -> None:
            if block.startswith("settle."):
                os.kill(os.getpid(), signal.SIGKILL)

        def relay() -> None:
            with penstock.open(log_url, clock=clock, hook=kill_before_settle) as mine:
                run_local_until_drained(mine, *app_of(target.publisher()).subscriptions)

        assert killed_in_child(relay)
        before = target.received()
        assert {one.id for one in before} == ids and count_by_state(log) == {"claimed": 20}
        clock.advance(61)
        run_local_until_drained(log, *app_of(target.publisher()).subscriptions)
        assert count_by_state(log) == {"published": 20}
        after = target.received()
        assert {one.id for one in after} == ids
        assert {(one.id, one.payload) for one in after} == {(one.id, one.payload) for one in before}
        if kind != "nats":  # whose streams drop what came before
            assert set(Counter(one.id for one in after).values()) == {2}


@pytest.mark.shows("R03", "K42")
@targets
def test_a_target_that_is_down_for_a_while_costs_no_failure_and_everything_arrives(
    log: penstock.Log, kind: str
) -> None:
    ids = append_orders(log, 200)
    with relay_target(kind) as target, running(log, app_of(target.publisher())):
        wait_until(lambda: count_by_state(log) == {"published": 200})
        target.down()
        ids += append_orders(log, 200)
        wait_until(lambda: log.groups("orders")[0].circuit is not None, "the circuit to open")
        target.up()
        wait_until(lambda: count_by_state(log) == {"published": 400})
        wait_until(lambda: log.groups("orders")[0].circuit is None, "the circuit to close")
        assert {one.id for one in target.received()} == {str(one) for one in ids}
    assert no_failure(log)


@pytest.mark.shows("R04")
def test_the_lease_of_a_slow_target_is_renewed_and_a_second_relay_publishes_none_of_it(make_log: MakeLog) -> None:
    extended = StatementCounter()
    log, other = make_log(hook=extended), make_log()
    append_orders(log, 20)
    hold = threading.Event()
    with WebhookTarget(lambda request: Reply(hold=hold)) as target:
        slow, second = (app_of(Webhook(target.url), lease_seconds=0.6, batch=20) for _ in range(2))
        with running(log, slow):
            wait_until(lambda: len(target.requests) == 20, "all of them to be on their way")
            with running(other, second):
                wait_until(lambda: extended.blocks.count("lease.extend") > 12, "the lease to be renewed")
                assert len(target.requests) == 20
                hold.set()
                wait_until(lambda: count_by_state(log) == {"published": 20})
        assert len(target.requests) == 20
    assert no_failure(log)


def test_a_call_may_take_longer_than_the_time_limit_of_a_handler() -> None:
    (subscription,) = app_of(Webhook("http://a")).subscriptions
    assert subscription.policy.timeout_seconds == penstock.core.limits.PUBLISH_SECONDS  # type: ignore[attr-defined]


@pytest.mark.shows("R05", "K18")
def test_order_by_key_holds_at_a_webhook_that_fails_in_every_way(make_log: MakeLog) -> None:
    log, other = make_log(), make_log()
    log.append_many("orders", [{"payload": {"n": n}, "type": "t", "ordering_key": f"k{n % 5}"} for n in range(70)])
    accepted: list[tuple[str, int]] = []
    tried: Counter[int] = Counter()
    lock = threading.Lock()

    def answer(request: Request) -> Reply:
        import json

        event = json.loads(request.body)
        number = event["data"]["n"]
        with lock:
            tried[number] += 1
            if tried[number] == 1 and number % 7 == 3:
                return (Reply(500), Reply(cut=True), Reply(408), Reply(503, {"Retry-After": "0"}))[number % 4]
            accepted.append((event["partitionkey"], number))
        return Reply()

    with WebhookTarget(answer) as target:
        settings: dict[str, Any] = {"ordering": "key", "lanes": 2, "retry": MANY_AT_ONCE, "batch": 10}
        first, second = (app_of(Webhook(target.url), **settings) for _ in range(2))
        with running(log, first), running(other, second):
            wait_until(lambda: count_by_state(log) == {"published": 70})
    assert {number for number, count in tried.items() if count > 1} >= {n for n in range(70) if n % 7 == 3}
    check_order(accepted, 70)


@pytest.mark.shows("R05", "K18")
def test_order_by_key_holds_at_a_valkey_that_is_killed(log: penstock.Log) -> None:
    with ValkeyServer() as server:
        app = app_of(Valkey(server.url, stream="orders"), ordering="key", lanes=2, batch=20)
        events = [{"payload": {"n": n}, "type": "t", "ordering_key": f"k{n % 5}"} for n in range(600)]
        with running(log, app):
            for start in range(0, 600, 200):
                log.append_many("orders", events[start : start + 200])
                wait_until(lambda start=start: count_by_state(log).get("published", 0) > start)  # type: ignore[misc]
                server.kill()
                server.start()
            wait_until(lambda: count_by_state(log) == {"published": 600})
        import json

        from tests.support.targets import in_valkey

        found = in_valkey(server, "orders")
        check_order([(str(one.key), json.loads(one.payload)["n"]) for one in found], 600)
    assert no_failure(log)


def check_order(arrived: list[tuple[str, int]], count: int) -> None:
    """Every event arrived, and those of a key for the first time in their order."""
    by_key: dict[str, list[int]] = {}
    for key, number in dict.fromkeys(arrived):
        by_key.setdefault(key, []).append(number)
    assert {number for numbers in by_key.values() for number in numbers} == set(range(count))
    for numbers in by_key.values():
        assert numbers == sorted(numbers)


@pytest.mark.shows("R06")
def test_the_outage_of_one_group_stops_only_that_group(log: penstock.Log) -> None:
    append_orders(log, 100)
    with relay_target("valkey") as target:
        app = app_of(target.publisher(), group="fine")
        app.publish("orders", group="down", publisher=Webhook(f"http://127.0.0.1:{free_port()}/"))
        with running(log, app):
            wait_until(lambda: count_by_state(log, group="fine") == {"published": 100})
            circuits = {one.group_name: one.circuit for one in log.groups("orders")}
            wait_until(lambda: {one.group_name: one.circuit for one in log.groups("orders")}["down"] is not None)
            append_orders(log, 100, first=100)
            wait_until(lambda: count_by_state(log, group="fine") == {"published": 200})
        assert circuits["fine"] is None and count_by_state(log, group="down") == {"pending": 200}
        assert len(target.received()) == 200


@pytest.mark.shows("R01", "R09", "R10")
@targets
def test_metadata_stays_and_key_headers_id_and_trace_go(log: penstock.Log, kind: str) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    log.append(
        "orders", b'{ "a":1 }', type="t", content_type="application/json", event_id=ulid, partition_key="p",
        ordering_key="o", headers={"tenant": "eu"}, metadata={"note": "internal-note", "traceparent": parent},
    )  # fmt: skip
    with relay_target(kind) as target:
        run_local_until_drained(log, *app_of(target.publisher()).subscriptions)
        (found,) = target.received()
    assert (found.id, found.key, found.payload, found.type) == (ulid, "p", b'{ "a":1 }', "t")
    assert sorted(found.headers) == [("tenant", b"eu"), ("traceparent", parent.encode())]
    assert b"internal-note" not in found.raw


@pytest.mark.shows("X03")
def test_no_log_line_and_no_stored_error_has_a_credential(
    log: penstock.Log, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    append_orders(log, 3)
    port = free_port()
    app = app_of(Webhook(f"http://me:s3cr3t@127.0.0.1:{port}/s3cr3t?t=s3cr3t", headers={"x": "s3cr3t"}))
    app.publish("orders", group="h", publisher=Valkey(f"valkey://:s3cr3t@127.0.0.1:{port}", stream="x"))
    with caplog.at_level("DEBUG"), running(log, app):
        wait_until(lambda: all(one.circuit is not None for one in log.groups("orders")), "both circuits to open")
    out = capfd.readouterr()
    stored = [str(one.circuit) for one in log.groups("orders")]
    assert "unavailable" in caplog.text
    assert "s3cr3t" not in f"{caplog.text} {stored} {out.out} {out.err} {[str(one) for one in log.runs()]}"
