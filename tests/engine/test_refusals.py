"""A handler may ask for something impossible: then its event fails, and no other does."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.errors import CommitUnknown
from penstock.log.lease import Lease
from tests.support.children import handlers
from tests.support.declarations import subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.local_engine import run_local_until_drained
from tests.support.notes import read_notes
from tests.support.raw_sql import raw

ODD = {
    "big_state": "invalid_input",
    "surrogate_state": "invalid_input",
    "big_parameter": "effect_refused",
    "surrogate_parameter": "effect_refused",
    "function_parameter": "effect_refused",
    "later_delta": "invalid_input",
    "later_never": "invalid_input",
    "or_rollback": "effect_refused",
    "two_statements": "effect_failed",
    "text_parameters": "invalid_input",
}


@pytest.mark.shows("K27")
@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_effects_that_cannot_be_stored_fail_only_their_event(log: penstock.Log, log_url: str, isolation: str) -> None:
    create_done_table(log_url)
    log.append_many(
        "orders",
        [
            {"payload": {"do": do}, "type": "t", "ordering_key": f"k{n}"}
            for n, what in enumerate(ODD)
            for do in (None, what, None)
        ],
    )
    run_local_until_drained(log, subscription(handlers.odd, isolation=isolation))
    dead = {one.json()["do"]: one.error_code for one in log.deliveries("orders", "g", state="DEAD")}
    assert dead == ODD and done_offsets(log_url) == []
    assert [log.state("orders", "g", f"k{n}")["seen"] for n in range(len(ODD))] == [2] * len(ODD)


@pytest.mark.shows("K27")
@pytest.mark.parametrize("do", ["sql", "bad_sql"])
@pytest.mark.parametrize("ordering", [None, "key"])
def test_state_is_exact_across_chunks_and_deaths(
    log: penstock.Log, log_url: str, do: str, ordering: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process dies in a later chunk than the first SQL: the next process must not overwrite new state with old."""
    monkeypatch.setattr("penstock.engine.isolation.supervised._CHUNK", 3)
    create_done_table(log_url)
    events = [{"payload": {"do": do if n == 0 else None}, "type": "t", "ordering_key": "k"} for n in range(20)]
    events.insert(12, {"payload": {"do": "exit"}, "type": "t", "ordering_key": "other"})
    log.append_many("orders", events)
    run_local_until_drained(log, subscription(handlers.counting_in_chunks, ordering=ordering, lanes=1))
    assert log.state("orders", "g", "k")["seen"] == 20


@pytest.mark.shows("K27")
def test_a_refused_event_releases_only_later_events_of_its_key(log: penstock.Log, log_url: str) -> None:
    create_done_table(log_url)
    log.append("seen", {"first": True}, type="event.seen", event_id=penstock.event_id("taken"))
    for key, do in (("a", "taken_id"), ("b", None), ("b", "taken_id"), ("a", None)):
        log.append("orders", {"do": do}, type="t", ordering_key=key)
    run_local_until_drained(log, subscription(handlers.counting, isolation="inline", lanes=1))
    assert sorted(done_offsets(log_url)) == [3, 5]
    attempts = {one.offset: one.attempts for one in log.deliveries("orders", "g", state="PUBLISHED")}
    assert attempts == {3: 1, 5: 2}, "more than the later event of the refused one's key came back"


@pytest.mark.shows("K27", "X03")
@pytest.mark.parametrize("do", [None, "bad_sql", "taken_id"])
def test_a_settle_is_repeated_when_its_answer_is_lost(
    log: penstock.Log, log_url: str, do: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settle committed, but its answer was lost: a repeated settle is the same and returns the first answer."""
    create_done_table(log_url)
    log.append("seen", {"first": True}, type="event.seen", event_id=penstock.event_id("taken"))
    for what in (None, do, None):
        log.append("orders", {"do": what}, type="t", ordering_key=f"k{what}")
    real, lost = Lease.apply, []

    def apply(self: Lease, said: object) -> object:
        answer = real(self, said)  # type: ignore[arg-type]
        if len(lost) < 1:
            lost.append(answer)
            raise CommitUnknown
        return answer

    monkeypatch.setattr(Lease, "apply", apply)
    engine = run_local_until_drained(log, subscription(handlers.counting, isolation="inline", lanes=1))
    assert lost and engine.snapshot()["orders/g"]["lost"] == 0
    assert sorted(done_offsets(log_url)) == ([2, 3, 4] if do is None else [2, 4])


@pytest.mark.shows("K27")
@pytest.mark.postgres
def test_a_deferred_constraint_fails_only_its_event(postgres_log: penstock.Log) -> None:
    with raw(postgres_log.store.url) as sql:
        sql("create table parent (n bigint primary key)")
        sql(
            "create table child (n bigint primary key, parent bigint references parent (n) "
            "deferrable initially deferred)"
        )
        for parent in (None, 99, None):
            postgres_log.append("orders", {} if parent is None else {"parent": parent}, type="t", ordering_key="k")
        run_local_until_drained(postgres_log, subscription(handlers.deferred))
        assert sql("select n from child order by n") == [(1,), (3,)]
    (dead,) = postgres_log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.error_code) == (2, "effect_failed") and "foreign key" in str(dead.last_error)


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_an_impossible_settle_is_narrowed_down_to_its_event(
    log: penstock.Log, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases get smaller until the event that causes it is alone, and the engine continues."""
    real = Lease.apply

    def apply(self: Lease, said: object) -> object:
        if 7 in self.events.offsets and not said.failed:  # type: ignore[attr-defined]
            raise RuntimeError("nobody expected this")
        return real(self, said)  # type: ignore[arg-type]

    monkeypatch.setattr(Lease, "apply", apply)
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 40)
    run_local_until_drained(log, subscription(handlers.plain, isolation=isolation))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.last_error) == (7, "settle_failed: nobody expected this")
    assert len(log.deliveries("orders", "g", state="PUBLISHED")) == 39


@pytest.mark.shows("S01")
def test_a_death_after_the_time_limit_is_narrowed_down_to_its_event(log: penstock.Log) -> None:
    log.append_many("orders", [{"payload": {"do": "exit" if n == 1 else None}, "type": "t"} for n in range(4)])
    run_local_until_drained(log, subscription(handlers.dies_late, concurrency=4, batch_seconds=0.2))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.failures) == (2, 2)


def test_a_returned_coroutine_is_a_failure(log: penstock.Log) -> None:
    log.append("orders", {}, type="t")
    run_local_until_drained(log, subscription(handlers.returns_a_coroutine, isolation="inline"))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert dead.error_code == "invalid_handler"


def test_an_object_with_an_async_call_is_awaited(log: penstock.Log, notes: Path) -> None:
    log.append("orders", {}, type="t")
    run_local_until_drained(log, subscription(handlers.async_object, isolation="inline"))
    assert read_notes(notes) == [["1", "called"]]


def test_a_group_cannot_mix_plain_and_async_handlers() -> None:
    app = penstock.App("sqlite:///none.db")
    app.subscribe("orders", group="g", types=["a"])(handlers.plain)
    with pytest.raises(penstock.PolicyConflict, match="async"):
        app.subscribe("orders", group="g", types=["b"])(handlers.slow_async)


@pytest.mark.shows("K26")
def test_a_crash_loop_ends_within_one_lease(log: penstock.Log) -> None:
    log.append_many("orders", [{"payload": {"do": "exit"}, "type": "t"}] * 200)
    engine = run_local_until_drained(log, subscription(handlers.plain))
    assert engine.paused and engine.snapshot()["orders/g"]["deaths"] == 10
