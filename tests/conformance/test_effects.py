"""Effects of a settle: state, emitted events and the user's SQL commit with it or not at all."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_lease
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


@pytest.fixture
def shop(log: penstock.Log, log_url: str) -> penstock.Log:
    """A user's table next to the log, and a keyed group."""
    with raw(log_url) as sql:
        sql("create table scores (n integer primary key)")
    log.create_group("orders", "g", keyed=True, lanes=1, retry=penstock.Retry(base_seconds=0, jitter=0))
    return log


def scores(url: str) -> list[int]:
    with raw(url) as sql:
        return [row[0] for row in sql("select n from scores order by n")]


def insert(n: int) -> tuple[str, list[int]]:
    return "insert into scores (n) values (?)", [n]


@pytest.mark.shows("K27")
def test_effects_commit_with_the_settle(shop: penstock.Log, log_url: str) -> None:
    append_orders(shop, 2, ordering_key="k")
    lease = claim_lease(shop)
    out = [{"stream": "out", "payload": {"a": 1}, "type": "alert", "ordering_key": "x", "headers": {"h": "1"}}]
    assert shop.read("out") == [] and scores(log_url) == []
    lease.settle(state={"k": {"seen": 2, "list": [1, {"a": None}]}}, emit=out, execute=[insert(1), insert(2)])
    assert shop.state("orders", "g", "k") == {"seen": 2, "list": [1, {"a": None}]}
    (event,) = shop.read("out")
    assert (event.json(), event.event_type, event.ordering_key, event.headers) == ({"a": 1}, "alert", "x", {"h": "1"})
    assert scores(log_url) == [1, 2]


@pytest.mark.shows("K27")
@pytest.mark.parametrize(
    "bad",
    [
        {"execute": [insert(5), ("insert into nowhere values (?)", [1])]},
        {"execute": [insert(5), ("select 1", [])]},
        {"execute": [insert(5), insert(5)]},
        {"execute": [insert(5)], "emit": [{"stream": "out", "payload": {}}]},
        {"execute": [insert(5)], "emit": [{"stream": "a b", "payload": {}, "type": "t"}]},
        {"execute": [insert(5)], "state": {"": {"a": 1}}},
        {"execute": [insert(5)], "state": {"k": {"a": object()}}},
    ],
)
def test_one_invalid_effect_fails_the_whole_settle(shop: penstock.Log, log_url: str, bad: dict[str, Any]) -> None:
    append_orders(shop, 1, ordering_key="k")
    lease = claim_lease(shop)
    with pytest.raises(penstock.PenstockError) as caught:
        lease.settle(**{"state": {"k": {"n": 1}}, **bad})
    assert caught.value.code in ("effect_failed", "missing_field", "invalid_name", "state_needs_key", "invalid_input")
    assert scores(log_url) == [] and shop.read("out") == [] and shop.state("orders", "g", "k") == {}
    assert lease.settle(execute=[insert(7)]).published == 1, "the lease is still held"
    assert scores(log_url) == [7]


@pytest.mark.shows("K27")
def test_an_sql_error_fails_its_event_only(shop: penstock.Log, log_url: str) -> None:
    ids = append_orders(shop, 5)
    lease = claim_lease(shop)

    def effects(n: int) -> dict[str, Any]:
        return {"execute": [insert(n)], "emit": [{"stream": "out", "payload": {"n": n}, "type": "t"}]}

    numbers = [1, 2, 2, 3, 4]  # the third event violates the primary key
    answer = lease.settle(effects={one: effects(n) for one, n in zip(ids, numbers, strict=True)})
    assert answer == penstock.Settled(4, 1, 0, 0)
    assert scores(log_url) == [1, 2, 3, 4]
    assert [event.json()["n"] for event in shop.read("out")] == [1, 2, 3, 4], (
        "emitted events of the failed event were kept"
    )
    shown = shop.delivery("orders", "g", ids[2])
    assert (shown.state, shown.failures, shown.error_code) == ("PENDING", 1, "effect_failed")


@pytest.mark.shows("K27")
def test_later_events_of_a_key_are_released_if_they_build_on_a_failed_one(shop: penstock.Log, log_url: str) -> None:
    first, second, other, third = (shop.append("orders", {}, type="t", ordering_key=key).event_id for key in "aaba")
    lease = claim_lease(shop)
    lease.state()
    answer = lease.settle(
        effects={
            first: {"state": {"a": {"n": 1}}, "execute": [insert(1)]},
            second: {"state": {"a": {"n": 2}}, "execute": [insert(1)]},  # fails
            other: {"state": {"b": {"n": 1}}, "execute": [insert(2)]},
            third: {"state": {"a": {"n": 3}}, "execute": [insert(3)]},  # builds on the second
        }
    )
    assert answer == penstock.Settled(2, 1, 0, 1)
    assert shop.state("orders", "g", "a") == {"n": 1} and shop.state("orders", "g", "b") == {"n": 1}
    assert scores(log_url) == [1, 2]
    assert [shop.delivery("orders", "g", one).failures for one in (second, third)] == [1, 0]


@pytest.mark.shows("K27")
def test_effects_of_a_failed_event_are_discarded(shop: penstock.Log, log_url: str) -> None:
    good, bad, dead, back = append_orders(shop, 4)
    lease = claim_lease(shop)
    lease.settle(
        failed={bad: "no"},
        dead={dead: "never"},
        released=[back],
        effects={one: {"execute": [insert(n)]} for n, one in enumerate((good, bad, dead, back))},
    )
    assert scores(log_url) == [0]


@pytest.mark.shows("K27")
def test_two_leases_on_one_key_never_lose_an_update(make_log: MakeLog) -> None:
    """Without lanes two leases can hold one key; versions detect the conflict."""
    log = make_log()
    log.create_group("orders", "g")
    append_orders(log, 40, ordering_key="k")
    counted: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        own = make_log()
        while (lease := own.claim("orders", "g", limit=1, claimed_by="w")) is not None:
            seen = lease.state(["k"]).get("k", {}).get("n", 0)
            try:
                lease.settle(state={"k": {"n": seen + 1}})
                with lock:
                    counted.append(1)
            except penstock.StateConflict:
                lease.release()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while (lease := log.claim("orders", "g", limit=1, claimed_by="w")) is not None:  # the events released last
        lease.settle(state={"k": {"n": lease.state(["k"])["k"]["n"] + 1}})
        counted.append(1)
    assert log.state("orders", "g", "k") == {"n": 40} and len(counted) == 40


@pytest.mark.shows("K27")
def test_state_has_versions_a_ttl_and_can_be_removed(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    append_orders(log, 3, ordering_key="k")
    log.create_group("orders", "g", keyed=True, lanes=1)

    def settle(value: object) -> None:
        lease = log.claim("orders", "g", limit=1, claimed_by="w")
        assert lease is not None
        lease.state()
        lease.settle(state={"k": {"a": value}})

    settle(penstock.WithTtl("short", ttl_seconds=30))
    assert log.state("orders", "g", "k") == {"a": "short"}
    clock.advance(30)
    assert log.state("orders", "g", "k") == {}
    settle("long")
    assert log.state("orders", "g", "k") == {"a": "long"}
    settle(None)
    assert log.state("orders", "g", "k") == {}


@pytest.mark.shows("K27")
@pytest.mark.parametrize("sql", ["commit", "ROLLBACK", " /* x */ begin", "-- y\nsavepoint a", "; end"])
def test_a_statement_cannot_end_the_settles_own_transaction(shop: penstock.Log, log_url: str, sql: str) -> None:
    (one,) = append_orders(shop, 1)
    lease = claim_lease(shop)
    with pytest.raises(penstock.EffectFailed, match="own transaction"):
        lease.settle(execute=[insert(1), (sql, [])])
    assert scores(log_url) == [] and shop.delivery("orders", "g", one).state == "CLAIMED"
    assert lease.settle(effects={one: {"execute": [insert(1), (sql, [])]}}).failed == 1
    assert scores(log_url) == []


@pytest.mark.shows("K27", "K42")
@pytest.mark.parametrize("state", ["53100", "53200", "58030"], ids=["disk full", "out of memory", "input/output error"])
def test_a_server_that_lacks_something_blames_no_event(
    postgres_log: penstock.Log, postgres_log_url: str, state: str
) -> None:
    """The settle is refused as a whole, and can be repeated once the server is well again."""
    append_orders(postgres_log, 2)
    postgres_log.create_group("orders", "g")
    lease = claim_lease(postgres_log)
    with raw(postgres_log_url) as sql:
        sql("create table scores (n integer primary key)")
        sql(
            "create function fail() returns trigger language plpgsql as "
            f"$$ begin raise exception 'could not extend file' using errcode = '{state}'; end $$"
        )
        sql("create trigger fails before insert on scores execute function fail()")
        with pytest.raises(penstock.StoreUnavailable, match="could not extend file"):
            lease.settle(execute=[insert(1)])
        sql("drop trigger fails on scores")
    assert lease.settle(execute=[insert(1)]).published == 2 and scores(postgres_log_url) == [1]
