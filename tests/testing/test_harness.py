"""`Harness`: an app on its own log, on both stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import App, Context, Event, Permanent, Retry, RetryLater, Unavailable
from penstock.core.lease import Settlement
from penstock.testing import Drained, Emitted, Harness, VirtualClock
from tests.support.raw_sql import raw

TEN_SECONDS = Retry(max_attempts=3, base_seconds=10, factor=2, jitter=0)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | None]:
    """None means the harness's own file; PostgreSQL needs a database."""
    yield None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def shop(calls: list[Any] | None = None, **policy: Any) -> App:
    """An app with one group that counts orders by key and fails if the order says so."""
    app = App("sqlite:////nowhere/production.db", name="shop")
    errors = {"fail": ValueError("bad order"), "dead": Permanent("never"), "down": Unavailable("down")}

    @app.subscribe("orders", group="fraud", **{"retry": TEN_SECONDS, **policy})
    def screen(event: Event, ctx: Context) -> None:
        order = event.json()
        if calls is not None:
            calls.append(order["id"])
        if event.ordering_key is not None:
            ctx.state["seen"] = ctx.state.get("seen", 0) + 1
        ctx.emit("alerts", {"order": order["id"]}, type="alert.raised")
        if order.get("raise") in errors:
            raise errors[order["raise"]]

    return app


def payloads(emitted: list[Emitted]) -> list[Any]:
    return [one.payload for one in emitted]


# --- what a drain does ------------------------------------------------------------------------------------------------


def test_a_drain_handles_what_is_due_and_counts_it(url: str | None) -> None:
    with Harness(shop(), url=url) as harness:
        assert harness.drain() == Drained()
        for number in range(3):
            harness.append("orders", {"id": number}, type="order.created", ordering_key="ada")
        assert harness.drain("fraud") == Drained(published=3)
        assert harness.emitted("alerts") == [
            Emitted("alerts", {"order": number}, type="alert.raised") for number in range(3)
        ]
        assert harness.state("fraud", "ada") == {"seen": 3}
        assert [one.state for one in harness.deliveries("fraud")] == ["PUBLISHED"] * 3
        assert harness.drain() == Drained()


def test_a_failure_leaves_no_effects_and_waits_for_the_clock(url: str | None) -> None:
    calls: list[int] = []
    with Harness(shop(calls), url=url) as harness:
        harness.append("orders", {"id": 1}, ordering_key="ada")
        harness.append("orders", {"id": 2, "raise": "fail"}, ordering_key="ada")
        harness.append("orders", {"id": 3}, ordering_key="ada")
        drained = harness.drain()
        assert drained == Drained(published=2, failed=1)
        assert [str(one) for one in drained.exceptions] == ["bad order"]
        assert payloads(harness.emitted("alerts")) == [{"order": 1}, {"order": 3}]
        assert harness.state("fraud", "ada") == {"seen": 2}
        (waiting,) = harness.deliveries("fraud", state="PENDING")
        assert waiting.available_at == harness.clock.now() + timedelta(seconds=10)

        assert harness.drain() == Drained()  # it does not wait
        harness.clock.advance(9.999)
        assert harness.drain() == Drained()
        harness.clock.advance(0.001)
        assert harness.drain() == Drained(failed=1)
        harness.clock.advance(20)
        assert harness.drain() == Drained(dead=1)
        assert calls == [1, 2, 3, 2, 2]
        (dead,) = harness.dead("fraud")
        assert (dead.json()["id"], dead.failures, dead.error_code) == (2, 3, "ValueError")


def test_permanent_is_dead_and_retry_later_waits_as_long_as_it_says(url: str | None) -> None:
    app = App()

    @app.subscribe("orders", group="fraud")
    def screen(event: Event) -> None:
        raise Permanent("never") if event.event_type == "bad" else RetryLater(3600)

    with Harness(app, url=url) as harness:
        harness.append("orders", {}, type="bad")
        harness.append("orders", {}, type="slow")
        assert harness.drain() == Drained(failed=1, dead=1)
        assert [one.event_type for one in harness.dead("fraud")] == ["bad"]
        harness.clock.advance(3599)
        assert harness.drain() == Drained()
        harness.clock.advance(1)
        assert harness.drain() == Drained(failed=1)


def test_a_failure_holds_back_later_events_of_its_key(url: str | None) -> None:
    calls: list[int] = []
    with Harness(shop(calls, ordering="key"), url=url) as harness:
        harness.append("orders", {"id": 1, "raise": "fail"}, ordering_key="ada")
        harness.append("orders", {"id": 2}, ordering_key="ada")
        harness.append("orders", {"id": 3}, ordering_key="bob")
        drained = harness.drain()
        assert (drained.published, drained.failed) == (1, 1)
        assert sorted(calls) == [1, 3]
        assert harness.state("fraud", "ada") == {}
        harness.clock.advance(10)
        harness.drain()
        harness.clock.advance(20)
        assert harness.drain() == Drained(published=1, dead=1)  # 2 is not claimed before 1 is resolved
        assert [one for one in calls if one != 3] == [1, 1, 1, 2]
        assert harness.state("fraud", "ada") == {"seen": 1}


def test_an_unavailable_target_is_left_alone_until_the_next_drain(url: str | None) -> None:
    calls: list[int] = []
    is_down = True
    app = App()

    @app.subscribe("orders", group="mail", batch_size=2)  # two leases: the second is not claimed
    def send(event: Event) -> None:
        calls.append(event.json()["id"])
        if is_down and event.json()["id"] > 0:
            raise Unavailable("connection refused")

    with Harness(app, url=url) as harness:
        for number in range(4):
            harness.append("orders", {"id": number})
        assert harness.drain() == Drained(published=1, released=1)
        assert calls == [0, 1]
        assert [one.failures for one in harness.deliveries("mail")] == [0, 0, 0, 0]
        is_down = False
        assert harness.drain() == Drained(published=3)


def test_groups_that_emit_to_each_other_are_drained_to_the_end(url: str | None) -> None:
    app = App()

    @app.subscribe("third", group="last")  # declared first, so it has nothing to do in the first round
    def last(event: Event, ctx: Context) -> None:
        ctx.emit("result", event.json() + 1, type="n")

    @app.subscribe("second", group="middle")
    async def middle(event: Event, ctx: Context) -> None:
        await asyncio.sleep(0)
        ctx.emit("third", event.json() + 1, type="n")

    @app.subscribe("first", group="begin")
    def begin(event: Event, ctx: Context) -> None:
        ctx.emit("second", event.json() + 1, type="n")

    with Harness(app, url=url) as harness:
        harness.append("first", 1)
        harness.append("first", 10)
        assert harness.drain("begin") == Drained(published=2)
        assert harness.emitted("third") == []
        assert harness.drain() == Drained(published=4)
        assert payloads(harness.emitted("result")) == [4, 13]


def test_a_refused_effect_fails_its_own_event(url: str | None) -> None:
    app = App()

    @app.subscribe("orders", group="scores")
    def score(event: Event, ctx: Context) -> None:
        ctx.execute("insert into scores values (?)", (event.json()["id"],))
        ctx.emit("scored", event.json()["id"], type="n")

    with Harness(app, url=url) as harness:
        with raw(harness.url) as sql:
            sql("create table scores (id bigint primary key)")
        for number in (1, 1, 2):
            harness.append("orders", {"id": number})
        assert harness.drain() == Drained(published=2, failed=1)
        with raw(harness.url) as sql:
            assert sorted(sql("select id from scores")) == [(1,), (2,)]
        assert payloads(harness.emitted("scored")) == [1, 2]


def test_types_binding_and_pause_of_the_group_apply(url: str | None) -> None:
    seen: list[str] = []
    app = App()

    @app.subscribe("orders", group="g", types=["order.*"])
    def handle(event: Event) -> None:
        seen.append(event.event_type)

    with Harness(app, url=url) as harness:
        harness.append("orders", {}, type="order.created")
        harness.append("orders", {}, type="other")
        harness.log.pause("orders", "g")
        assert harness.drain() == Drained()
        harness.log.resume("orders", "g")
        assert harness.drain() == Drained(published=1)
        assert seen == ["order.created"]


def test_state_expires_by_the_virtual_clock(url: str | None) -> None:
    app = App()

    @app.subscribe("orders", group="g")
    def handle(event: Event, ctx: Context) -> None:
        ctx.state.set("recent", True, ttl_seconds=60)

    with Harness(app, url=url) as harness:
        harness.append("orders", {}, ordering_key="ada")
        harness.drain()
        harness.clock.advance(59)
        assert harness.state("g", "ada") == {"recent": True}
        harness.clock.advance(1)
        assert harness.state("g", "ada") == {}


# --- where and how handlers run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["process", "inline"])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_handlers_run_in_the_calling_thread_one_after_the_other(isolation: str, concurrency: int) -> None:
    threads: list[int] = []
    app = App()

    @app.subscribe("orders", group="g", isolation=isolation, concurrency=concurrency)
    def handle(event: Event) -> None:
        threads.append(threading.get_ident())

    with Harness(app) as harness:
        for _ in range(20):
            harness.append("orders", {})
        assert harness.drain() == Drained(published=20)
    assert threads == [threading.get_ident()] * 20


def test_async_handlers_keep_one_event_loop() -> None:
    loops: list[Any] = []
    app = App()

    @app.subscribe("orders", group="g")
    async def handle(event: Event) -> None:
        loops.append(asyncio.get_running_loop())

    with Harness(app) as harness:
        for _ in range(2):
            harness.append("orders", {})
            assert harness.drain() == Drained(published=1)
    assert loops[0] is loops[1]
    assert loops[0].is_closed()


def test_a_drain_of_async_handlers_is_refused_where_a_loop_runs_already() -> None:
    app = App()

    @app.subscribe("orders", group="g")
    async def handle(event: Event) -> None: ...

    async def main() -> None:
        with Harness(app) as harness:
            harness.append("orders", {})
            with pytest.raises(penstock.InvalidInput, match="to_thread"):
                harness.drain()
            assert await asyncio.to_thread(harness.drain) == Drained(published=1)

    asyncio.run(main())


def test_an_exception_that_ends_the_test_ends_the_drain_and_releases_the_lease() -> None:
    calls: list[int] = []
    app = App()

    @app.subscribe("orders", group="g")
    def handle(event: Event) -> None:
        calls.append(event.json())
        if len(calls) == 1:
            raise KeyboardInterrupt

    with Harness(app) as harness:
        harness.append("orders", 1)
        harness.append("orders", 2)
        with pytest.raises(KeyboardInterrupt):
            harness.drain()
        assert calls == [1]
        assert harness.drain() == Drained(published=2)
    assert calls == [1, 1, 2]


def test_an_endless_drain_times_out() -> None:
    app = App()

    @app.subscribe("ping", group="ping")
    def ping(event: Event, ctx: Context) -> None:
        ctx.emit("pong", {}, type="n")

    @app.subscribe("pong", group="pong")
    def pong(event: Event, ctx: Context) -> None:
        ctx.emit("ping", {}, type="n")

    with Harness(app) as harness:
        harness.append("ping", {})
        with pytest.raises(TimeoutError, match="still has work"):
            harness.drain(most_seconds=0.05)
        assert harness.deliveries("ping", state="CLAIMED") == harness.deliveries("pong", state="CLAIMED") == []


def test_a_handler_cannot_drain() -> None:
    app = App()
    harness = Harness(app)

    @app.subscribe("orders", group="g", retry=Retry(max_attempts=1))
    def handle(event: Event) -> None:
        harness.drain()

    with harness:
        harness.append("orders", {})
        drained = harness.drain()
        assert drained == Drained(dead=1)
        assert isinstance(drained.exceptions[0], penstock.InvalidInput)


# --- the log of its own -----------------------------------------------------------------------------------------------


def test_the_apps_own_log_is_untouched_and_restored() -> None:
    app = shop()
    before = app.url
    with Harness(app) as harness:
        assert app.url == harness.url != before
        with app.open() as log:
            log.append("orders", {"id": 1}, type="order.created")
        assert harness.drain() == Drained(published=1)
        path = Path(harness.url.removeprefix("sqlite:///"))
        assert path.exists()
    assert app.url == before
    assert not path.parent.exists()


def test_two_harnesses_share_nothing() -> None:
    app = shop()
    with Harness(app) as one:
        one.append("orders", {"id": 1})
    with Harness(app) as other:
        assert other.drain() == Drained()
        assert other.log.streams() == []


def test_a_given_url_is_used_and_its_data_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kept.db"
    with Harness(shop(), url=url) as harness:
        harness.append("orders", {"id": 1}, ordering_key="ada")
        harness.drain()
        assert payloads(harness.emitted("alerts")) == [{"order": 1}]
    with Harness(shop(), url=url) as harness:
        assert harness.emitted("alerts") == []  # only new events
        harness.append("orders", {"id": 2}, ordering_key="ada")
        assert harness.drain() == Drained(published=1)
        assert payloads(harness.emitted("alerts")) == [{"order": 2}]
        assert harness.state("fraud", "ada") == {"seen": 2}


def test_a_given_clock_is_used() -> None:
    clock = VirtualClock()
    clock.advance(1000)
    with Harness(shop(), clock=clock) as harness:
        assert harness.clock is clock
        harness.append("orders", {"id": 1})
        assert harness.log.read("orders")[0].created_at == clock.start + timedelta(seconds=1000)


def test_emitted_leaves_out_what_the_test_appended_to_the_same_stream() -> None:
    app = App()

    @app.subscribe("steps", group="g", types=["first"])
    def handle(event: Event, ctx: Context) -> None:
        ctx.emit("steps", "second", type="second")

    with Harness(app) as harness:
        harness.append("steps", "first", type="first")
        harness.drain()
        assert payloads(harness.emitted("steps")) == ["second"]


def test_append_takes_every_field() -> None:
    seen: list[Event] = []
    app = App()
    app.subscribe("orders", group="g")(seen.append)
    with Harness(app) as harness:
        due = harness.clock.now() + timedelta(seconds=5)
        number = penstock.event_id("order-7")
        done = harness.append("orders", {"id": 7}, headers={"tenant": "eu"}, event_id=number, available_at=due)
        assert harness.drain() == Drained()
        harness.clock.advance(5)
        assert harness.drain() == Drained(published=1)
    assert (seen[0].event_type, seen[0].headers, seen[0].event_id) == ("test", {"tenant": "eu"}, done.event_id)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_an_undeclared_group_is_refused() -> None:
    with Harness(shop()) as harness:
        for ask in (
            lambda: harness.drain("froud"),
            lambda: harness.drain("fraud", stream="elsewhere"),
            lambda: harness.deliveries("froud"),
            lambda: harness.dead("froud"),
            lambda: harness.state("froud", "ada"),
        ):
            with pytest.raises(penstock.UnknownGroup, match="orders/fraud"):
                ask()


def test_a_group_name_on_two_streams_needs_the_stream() -> None:
    app = App()
    app.subscribe("orders", group="audit")(lambda event: None)
    app.subscribe("payments", group="audit")(lambda event: None)
    with Harness(app) as harness:
        harness.append("orders", {})
        harness.append("payments", {})
        with pytest.raises(penstock.InvalidInput, match="orders, payments"):
            harness.deliveries("audit")
        assert harness.drain("audit", stream="orders") == Drained(published=1)
        assert [one.state for one in harness.deliveries("audit", stream="payments")] == ["PENDING"]
        assert harness.drain("audit") == Drained(published=1)


def test_an_app_without_handlers_is_refused() -> None:
    with pytest.raises(penstock.InvalidInput, match="no handlers"), Harness(App()):
        pass


def test_a_harness_has_no_log_outside_its_block() -> None:
    harness = Harness(shop())
    for _ in range(2):
        with pytest.raises(penstock.InvalidInput, match="inside its block"):
            harness.append("orders", {"id": 1})
        with pytest.raises(penstock.InvalidInput, match="inside its block"):
            harness.drain()
        with harness:
            assert harness.drain() == Drained()
            with pytest.raises(penstock.InvalidInput, match="in use"), harness:
                pass


def test_a_conflicting_binding_is_refused_and_the_app_is_restored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    with penstock.open(url) as log:
        log.create_group("orders", "fraud", types=["other"])
    app = shop()
    before = app.url
    with pytest.raises(penstock.BindingChanged), Harness(app, url=url):
        pass
    assert app.url == before


def test_an_impossible_settle_fails_only_the_event_that_causes_it(
    url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App()
    app.subscribe("orders", group="g")(lambda event: None)
    apply = penstock.Lease.apply

    def refuse(lease: penstock.Lease, said: Settlement) -> penstock.Settled:
        if bad in lease.events.offsets and bad not in said.failed:
            raise RuntimeError("impossible")
        return apply(lease, said)

    monkeypatch.setattr(penstock.Lease, "apply", refuse)
    with Harness(app, url=url) as harness:
        bad = [harness.append("orders", number).offset for number in range(4)][2]
        drained = harness.drain()
        assert drained == Drained(published=3, failed=1, released=4)
        assert [str(one) for one in drained.exceptions] == ["impossible"] * 2
        (waiting,) = harness.deliveries("g", state="PENDING")
        assert (waiting.json(), waiting.last_error) == (2, "settle_failed: impossible")


@pytest.mark.parametrize("error", [penstock.LeaseLost, penstock.StoreUnavailable])
def test_a_store_error_reaches_the_test_and_the_lease_is_released(
    monkeypatch: pytest.MonkeyPatch, error: type[penstock.PenstockError]
) -> None:
    apply = penstock.Lease.apply
    raising = iter([error])

    def refuse(lease: penstock.Lease, said: Settlement) -> penstock.Settled:
        for trouble in raising:
            raise trouble
        return apply(lease, said)

    monkeypatch.setattr(penstock.Lease, "apply", refuse)
    with Harness(shop()) as harness:
        harness.append("orders", {"id": 1})
        with pytest.raises(error):
            harness.drain()
        assert harness.drain() == Drained(published=1)
