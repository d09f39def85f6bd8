"""Whatever a handler's process does while it loads or reports, the engine goes on."""

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
from tests.conformance.helpers import orders
from tests.engine import dies_while_loading, handlers, odd_exceptions, odd_reports
from tests.engine.driving import PATIENCE, done, drain, make_done, subscription
from tests.engine.test_deaths import PATIENT, append, claimed, emitted, every_call_has_its_own_attempt
from tests.engine.waiting import until


@pytest.mark.shows("K42")
def test_a_process_that_is_killed_while_it_loads_again_ends_no_engine(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loaded once. When it has to be started anew, something kills it twice before it is ready."""
    kills = tmp_path / "kills"
    kills.write_bytes(b".xx")
    monkeypatch.setenv("PENSTOCK_KILLS", str(kills))
    monkeypatch.setenv("PENSTOCK_ENGINE", str(os.getpid()))
    monkeypatch.setenv("PENSTOCK_NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr("penstock.engine.worker._RELOAD_SECONDS", 0.01)
    append(log, [{"1": "exit"} if n == 1 else {} for n in range(4)], lambda n: None)
    drain(log, subscription(dies_while_loading.handle, retry=PATIENT))
    assert kills.read_bytes() == b""
    shown = log.deliveries("orders", "g")
    assert {str(one.state) for one in shown} == {"PUBLISHED"}
    assert [log.delivery("orders", "g", n).failures for n in range(1, 5)] == [0, 1, 0, 0]
    every_call_has_its_own_attempt(tmp_path / "notes")


@pytest.mark.shows("K42")
def test_a_group_that_is_deleted_ends_no_engine(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker waits for a new one, and says so once; the other groups go on."""
    monkeypatch.setenv("PENSTOCK_NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr("penstock.engine.worker._GONE_SECONDS", 0.05)
    both = [subscription(handlers.plain, group=name) for name in ("g", "h")]
    engine = LocalEngine(log, both)
    engine.start()
    try:
        orders(log, 3)
        until(lambda: published(log, "g") == published(log, "h") == 3)
        log.delete_group("orders", "g")
        orders(log, 2)
        until(lambda: published(log, "h") == 5)
        until(lambda: "the group was deleted" in caplog.text)
        log.create_group("orders", "g")
        until(lambda: published(log, "g") == 5)
    finally:
        engine.stop()
        assert engine.wait(PATIENCE)
    assert caplog.text.count("the group was deleted") == 1


@pytest.mark.shows("K42", "K45")
@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_an_exception_of_any_class_is_the_outcome_of_its_own_event(log: penstock.Log, isolation: str) -> None:
    count = len(odd_exceptions.ALL)
    log.append_many("orders", [{"payload": {"which": n if n < count else None}, "type": "t"} for n in range(2 * count)])
    retry = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
    drain(log, subscription(odd_exceptions.handle, isolation=isolation, retry=retry))
    shown = log.deliveries("orders", "g", state="DEAD", limit=100)
    assert {one.offset for one in shown} == set(range(1, count + 1))
    assert all(one.failures == 2 and one.error_code != "process_died" for one in shown)
    assert log.delivery("orders", "g", count).last_error == "busy"
    assert published(log, "g") == count


def published(log: penstock.Log, group: str) -> int:
    return log.stats("orders", group).groups[0].published


@pytest.mark.shows("K42")
def test_a_drain_says_that_a_group_was_deleted(log: penstock.Log) -> None:
    log.create_group("orders", "h")
    left = Drained(log, [subscription(handlers.plain, group="h")])
    assert left.look() and not left.paused
    log.delete_group("orders", "h")
    assert left.look() and left.paused == {"orders/h": "the group was deleted"}


@pytest.mark.shows("K42")
def test_a_handler_that_never_loaded_is_an_error_at_once(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = tmp_path / "kills"
    kills.write_bytes(b"xxxx")
    monkeypatch.setenv("PENSTOCK_KILLS", str(kills))
    monkeypatch.setenv("PENSTOCK_ENGINE", str(os.getpid()))
    append(log, [{}], lambda n: None)
    with pytest.raises(penstock.PenstockError) as refused:
        drain(log, subscription(dies_while_loading.handle))
    assert refused.value.code == "handler_unreachable"
    assert log.delivery("orders", "g", 1).attempts == 0


@pytest.mark.shows("K42", "K45", "K46")
@pytest.mark.parametrize("how", ["hang_up", "unsendable"])
@pytest.mark.parametrize("ordering", ["key", None])
def test_an_event_that_makes_it_impossible_to_report_is_to_blame_and_nobody_else(
    log: penstock.Log, log_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, ordering: str | None
) -> None:
    """It succeeds, and its process cannot tell: one of forty ends DEAD, the others leave their effects once."""
    monkeypatch.setenv("PENSTOCK_NOTES", str(tmp_path / "notes"))
    make_done(log_url)
    log.append_many(
        "orders",
        [{"payload": {"do": how if n == 20 else None}, "type": "t", "ordering_key": f"k{n % 3}"} for n in range(40)],
    )
    retry = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
    drain(log, subscription(odd_reports.unreportable, ordering=ordering, lanes=1, retry=retry))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.failures, dead.error_code) == (21, 2, "process_died")
    assert "status 1" in str(dead.last_error), "its own end, and not that we ended it"
    good = [n for n in range(1, 41) if n != 21]
    assert sorted(done(log_url)) == good
    for key in range(3):
        own = [n for n in good if (n - 1) % 3 == key]
        seen = log.state("orders", "g", f"k{key}")["seen"]
        assert (seen if ordering else sorted(seen)) == own
    every_call_has_its_own_attempt(tmp_path / "notes")


@pytest.mark.shows("K27", "K42")
def test_text_may_come_from_an_enum(log: penstock.Log, log_url: str) -> None:
    """Stream, type, key, state name, statement, header, error code: what leaves the process is plain text."""
    make_done(log_url)
    append(log, [{}] * 4, lambda n: "k")
    drain(log, subscription(odd_reports.enums, lanes=1))
    assert {str(one.state) for one in log.deliveries("orders", "g")} == {"PUBLISHED"}
    assert sorted(done(log_url)) == sorted(emitted(log)) == [1, 2, 3, 4]
    assert log.state("orders", "g", "k") == {"total": 4, "sold_out": 1}
    assert {(one.event_type, one.ordering_key) for one in log.read("seen")} == {("event.seen", "total")}
    assert {tuple(one.headers.items()) for one in log.read("seen")} == {(("tenant", "total"),)}
    codes = [[one.error_code for one in log.delivery("orders", "g", n).history if one.error_code] for n in range(1, 5)]
    assert codes == [["sold_out"], ["RetryLater"]] * 2


@pytest.mark.shows("K39")
def test_an_append_takes_text_of_an_enum_for_what_it_is(log: penstock.Log) -> None:
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
def test_nothing_is_started_of_a_lease_that_was_lost_while_it_waited(log: penstock.Log) -> None:
    """A lease is read ahead, and its heartbeat is refused before its turn comes."""
    orders(log, 3)
    log.create_group("orders", "g")
    lease = claimed(log)
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
    orders(log, 3)
    log.create_group("orders", "g")
    lease = claimed(log)
    watch = Heartbeat()
    watch.keep(lease, 60)
    marks = Inline(subscription(handlers.plain)).marks
    with watch.limit(lease, marks, 3, None):
        log.release(lease.id, lease.token)
        watch._beat(watch._watched[lease.id])
        assert marks.stop[0] == 1
    marks.stop[0] = 0
    one = Heartbeat()
    again = claimed(log)
    one.keep(again, 60)
    watched = one._watched[again.id]
    with one.limit(again, marks, 3, None):
        pass
    log.release(again.id, again.token)
    one._beat(watched)
    assert marks.stop[0] == 0, "by now the marks are those of the next lease"


@pytest.mark.shows("K47")
def test_an_error_may_come_from_an_enum(log: penstock.Log) -> None:
    class Why(str, Enum):  # noqa: UP042 - this is the kind that is meant
        GONE = "the order is gone"

    log.create_group("orders", "g")
    (event,) = orders(log, 1)
    claimed(log).settle(dead={event: Why.GONE})
    assert log.deliveries("orders", "g", state="DEAD", error=Why.GONE)[0].last_error == "the order is gone"
