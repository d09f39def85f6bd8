"""Whatever a handler's process does while it loads or reports, the engine continues."""

from __future__ import annotations

import os
from enum import Enum, StrEnum
from pathlib import Path

import pytest

import penstock
from penstock.engine.drain import Drained
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.isolation.inline import Inline
from penstock.engine.local.engine import LocalEngine
from penstock.engine.work import Work
from tests.support.children import dies_while_loading, handlers, odd_exceptions, odd_reports
from tests.support.declarations import SIX_ATTEMPTS, subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.log_steps import append_orders, claim_lease, count_published
from tests.support.scripted_events import append_scripts, assert_each_call_has_its_own_attempt, emitted_offsets
from tests.support.waiting import wait_until


def plan_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: bytes) -> Path:
    """Kill the handler's process while it loads, at every start that is an x; return the file of the starts left."""
    kills = tmp_path / "kills"
    kills.write_bytes(plan)
    monkeypatch.setenv("PENSTOCK_KILLS", str(kills))
    monkeypatch.setenv("PENSTOCK_ENGINE", str(os.getpid()))
    return kills


@pytest.mark.shows("K42")
def test_an_engine_survives_a_process_killed_while_reloading(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loaded once; when it is restarted, it is killed twice before it is ready."""
    kills = plan_kills(tmp_path, monkeypatch, b".xx")
    monkeypatch.setattr("penstock.engine.worker._RELOAD_SECONDS", 0.01)
    append_scripts(log, [{"1": "exit"} if n == 1 else {} for n in range(4)], lambda n: None)
    run_local_until_drained(log, subscription(dies_while_loading.handle, retry=SIX_ATTEMPTS))
    assert kills.read_bytes() == b""
    shown = log.deliveries("orders", "g")
    assert {str(one.state) for one in shown} == {"PUBLISHED"}
    assert [log.delivery("orders", "g", n).failures for n in range(1, 5)] == [0, 1, 0, 0]
    assert_each_call_has_its_own_attempt(notes)


@pytest.mark.shows("K42")
def test_an_engine_survives_a_process_killed_while_it_loads_for_the_first_time(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = plan_kills(tmp_path, monkeypatch, b"xx.")
    monkeypatch.setattr("penstock.engine.worker._RELOAD_SECONDS", 0.01)
    append_scripts(log, [{}] * 3, lambda n: None)
    run_local_until_drained(log, subscription(dies_while_loading.handle))
    assert kills.read_bytes() == b""
    assert count_published(log) == 3


@pytest.mark.shows("K42")
def test_an_engine_survives_a_deleted_group(
    log: penstock.Log, notes: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker waits for a new group and logs it once; other groups continue."""
    monkeypatch.setattr("penstock.engine.worker._GONE_SECONDS", 0.05)
    both = [subscription(handlers.plain, group=name) for name in ("g", "h")]
    engine = LocalEngine(log, both)
    engine.start()
    try:
        append_orders(log, 3)
        wait_until(lambda: count_published(log, "g") == count_published(log, "h") == 3)
        log.delete_group("orders", "g")
        append_orders(log, 2)
        wait_until(lambda: count_published(log, "h") == 5)
        wait_until(lambda: "the group was deleted" in caplog.text)
        log.create_group("orders", "g")
        wait_until(lambda: count_published(log, "g") == 5)
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS)
    assert caplog.text.count("the group was deleted") == 1


@pytest.mark.shows("K42", "K45")
@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_an_exception_of_any_class_is_the_outcome_of_its_own_event(log: penstock.Log, isolation: str) -> None:
    count = len(odd_exceptions.ALL)
    log.append_many("orders", [{"payload": {"which": n if n < count else None}, "type": "t"} for n in range(2 * count)])
    retry = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
    run_local_until_drained(log, subscription(odd_exceptions.handle, isolation=isolation, retry=retry))
    shown = log.deliveries("orders", "g", state="DEAD", limit=100)
    assert {one.offset for one in shown} == set(range(1, count + 1))
    assert all(one.failures == 2 and one.error_code != "process_died" for one in shown)
    assert log.delivery("orders", "g", count).last_error == "busy"
    assert count_published(log, "g") == count


@pytest.mark.shows("K42")
def test_until_drained_reports_a_deleted_group(log: penstock.Log) -> None:
    log.create_group("orders", "h")
    left = Drained(log, [subscription(handlers.plain, group="h")])
    assert left.look() and not left.paused
    log.delete_group("orders", "h")
    assert left.look() and left.paused == {"orders/h": "the group was deleted"}


@pytest.mark.shows("K42")
def test_a_handler_that_never_loads_fails_the_run_at_once(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_kills(tmp_path, monkeypatch, b"xxxx")
    append_scripts(log, [{}], lambda n: None)
    with pytest.raises(penstock.PenstockError) as refused:
        run_local_until_drained(log, subscription(dies_while_loading.handle))
    assert refused.value.code == "handler_unreachable"
    assert log.delivery("orders", "g", 1).attempts == 0


@pytest.mark.shows("K42", "K45", "K46")
@pytest.mark.parametrize("how", ["hang_up", "unsendable"])
@pytest.mark.parametrize("ordering", ["key", None])
def test_an_event_whose_outcome_cannot_be_reported_fails_alone(
    log: penstock.Log, log_url: str, notes: Path, how: str, ordering: str | None
) -> None:
    """It succeeds, but its process cannot report it: one of forty ends DEAD, the others have their effects once."""
    create_done_table(log_url)
    log.append_many(
        "orders",
        [{"payload": {"do": how if n == 20 else None}, "type": "t", "ordering_key": f"k{n % 3}"} for n in range(40)],
    )
    retry = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
    run_local_until_drained(log, subscription(odd_reports.unreportable, ordering=ordering, lanes=1, retry=retry))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.failures, dead.error_code) == (21, 2, "process_died")
    assert "status 1" in str(dead.last_error), "must name the process's own end"
    good = [n for n in range(1, 41) if n != 21]
    assert sorted(done_offsets(log_url)) == good
    for key in range(3):
        own = [n for n in good if (n - 1) % 3 == key]
        seen = log.state("orders", "g", f"k{key}")["seen"]
        assert (seen if ordering else sorted(seen)) == own
    assert_each_call_has_its_own_attempt(notes)


@pytest.mark.shows("K27", "K42")
def test_a_handler_may_use_enum_members_as_text(log: penstock.Log, log_url: str) -> None:
    """Stream, type, key, state name, statement, header and error code leave the process as plain text."""
    create_done_table(log_url)
    append_scripts(log, [{}] * 4, lambda n: "k")
    run_local_until_drained(log, subscription(odd_reports.enums, lanes=1))
    assert {str(one.state) for one in log.deliveries("orders", "g")} == {"PUBLISHED"}
    assert sorted(done_offsets(log_url)) == sorted(emitted_offsets(log)) == [1, 2, 3, 4]
    assert log.state("orders", "g", "k") == {"total": 4, "sold_out": 1}
    assert {(one.event_type, one.ordering_key) for one in log.read("seen")} == {("event.seen", "total")}
    assert {tuple(one.headers.items()) for one in log.read("seen")} == {(("tenant", "total"),)}
    codes = [[one.error_code for one in log.delivery("orders", "g", n).history if one.error_code] for n in range(1, 5)]
    assert codes == [["sold_out"], ["RetryLater"]] * 2


@pytest.mark.shows("K39")
def test_append_accepts_enum_members_as_text(log: penstock.Log) -> None:
    class Plain(StrEnum):
        TYPE = "order.created"
        KEY = "c-42"

    class Mixed(str, Enum):  # noqa: UP042 - this is the kind that is meant
        TYPE = "order.created"
        KEY = "c-42"

    for words in (Plain, Mixed):
        log.append("orders", {}, type=words.TYPE, ordering_key=words.KEY, partition_key=words.KEY)
        log.append_many("orders", [{"payload": {}, "type": words.TYPE, "ordering_key": words.KEY}] * 2)
    found = log.read("orders")
    assert [(type(one.event_type), one.event_type, one.ordering_key) for one in found] == [
        (str, "order.created", "c-42")
    ] * 6
    assert {one.partition_key for one in found} == {None, "c-42"}


@pytest.mark.shows("K15")
def test_a_prefetched_lease_that_was_lost_is_not_started(log: penstock.Log) -> None:
    """The heartbeat of a prefetched lease is refused before the lease is started."""
    append_orders(log, 3)
    log.create_group("orders", "g")
    lease = claim_lease(log)
    watch = Heartbeat()
    watch.keep(lease, 60)
    log.release(lease.id, lease.token)
    watch._beat(watch._watched[lease.id])
    called: list[int] = []
    inline = Inline(subscription(lambda event: called.append(event.offset)))
    work = Work(lease.events, lease.token, inline.marks)
    with watch.limit(lease, inline.marks, 3, None):
        inline.run(work)
    assert called == [] and work.touched() == 0


@pytest.mark.shows("K15")
def test_a_refused_heartbeat_stops_the_lease_in_work(log: penstock.Log) -> None:
    append_orders(log, 3)
    log.create_group("orders", "g")
    lease = claim_lease(log)
    watch = Heartbeat()
    watch.keep(lease, 60)
    marks = Inline(subscription(handlers.plain)).marks
    with watch.limit(lease, marks, 3, None):
        log.release(lease.id, lease.token)
        watch._beat(watch._watched[lease.id])
        assert marks.stop[0] == 1
    marks.stop[0] = 0
    one = Heartbeat()
    again = claim_lease(log)
    one.keep(again, 60)
    watched = one._watched[again.id]
    with one.limit(again, marks, 3, None):
        pass
    log.release(again.id, again.token)
    one._beat(watched)
    assert marks.stop[0] == 0, "the marks now belong to the next lease"


@pytest.mark.shows("K47")
def test_an_error_code_may_be_an_enum_member(log: penstock.Log) -> None:
    class Why(str, Enum):  # noqa: UP042 - this is the kind that is meant
        GONE = "the order is gone"

    log.create_group("orders", "g")
    (event,) = append_orders(log, 1)
    claim_lease(log).settle(dead={event: Why.GONE})
    assert log.deliveries("orders", "g", state="DEAD", error=Why.GONE)[0].last_error == "the order is gone"
