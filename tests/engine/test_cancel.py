"""`log.cancel`: an event that runs is ended, its neighbours are not harmed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine.local.engine import LocalEngine
from tests.support.children import cancelled
from tests.support.declarations import subscription
from tests.support.local_engine import PATIENCE_SECONDS
from tests.support.notes import read_notes
from tests.support.raw_sql import raw
from tests.support.waiting import wait_until

QUICK: dict[str, Any] = {
    "lease_seconds": 0.6,
    "batch_seconds": 60,
    "timeout_seconds": 600,
    "retry": penstock.Retry(max_attempts=1),
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for handlers that do not look."""
    monkeypatch.setattr("penstock.engine.isolation.supervised._GRACE", 0.1)


@contextmanager
def engine(log: penstock.Log, function: Any, **policy: Any) -> Iterator[None]:
    """A worker whose heartbeats come every 0.2 s."""
    running = LocalEngine(log, [subscription(function, **QUICK, **policy)])
    running.start()
    try:
        yield
    finally:
        running.stop()
        assert running.wait(PATIENCE_SECONDS)


def append(log: penstock.Log, *waiting: int, count: int = 5, end: str | None = None) -> list[Any]:
    """Events of one key, of which some wait to be told."""
    return [
        log.append("orders", {"wait": n in waiting, "end": end}, type="t", ordering_key="ada").event_id
        for n in range(1, count + 1)
    ]


def states(log: penstock.Log) -> list[tuple[str, str | None, int]]:
    return [(str(one.state), one.reason, one.failures) for one in log.deliveries("orders", "g")]


DONE, CANCELLED = ("PUBLISHED", None, 0), ("DEAD", "cancelled", 1)


@pytest.mark.parametrize(
    ("function", "policy"),
    [
        (cancelled.deaf_async, {}),
        (cancelled.deaf, {"concurrency": 3}),
        (cancelled.deaf_many, {"batch": 3}),
        (cancelled.deaf, {"ordering": "key"}),
    ],
    ids=["async", "concurrent", "batch", "ordered"],
)
def test_however_a_handler_runs_it_is_ended_alone(
    tmp_path: Path, notes: Path, function: Any, policy: dict[str, Any]
) -> None:
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        end_the_second(log, notes, function, **policy)


def test_a_running_event_that_does_not_look_is_ended_alone(log: penstock.Log, notes: Path) -> None:
    one = end_the_second(log, notes, cancelled.deaf)
    assert (one.error_code, one.last_error) == ("cancelled", "cancelled by ada: a loop")
    assert [line.outcome for line in one.history][-1] == "dead"
    with raw(log.store.url) as sql:
        assert sql("select by, action, count from penstock.audit") == [("ada", "cancel", 1)]


def end_the_second(log: penstock.Log, notes: Path, function: Any, **policy: Any) -> Any:
    """Cancel the second of five events, which hangs; the others are done."""
    second = append(log, 2)[1]
    first_of_call = "1" if "batch" in policy else "2"
    with engine(log, function, **policy):
        wait_until(lambda: [first_of_call, "began"] in read_notes(notes))
        answer = log.cancel("orders", "g", event_ids=[second], reason="a loop", by="ada")
        assert (answer.count, answer.running) == (1, 1)
        wait_until(lambda: states(log) == [DONE, CANCELLED, DONE, DONE, DONE])
    return log.delivery("orders", "g", second)


@pytest.mark.parametrize("isolation", ["process", "inline"])
@pytest.mark.parametrize("end", [None, "raise"])
def test_a_handler_that_looks_ends_itself(log: penstock.Log, notes: Path, isolation: str, end: str | None) -> None:
    """If it returns, it has succeeded; if it raises, it is DEAD."""
    ids = append(log, 1, count=1, end=end)
    with engine(log, cancelled.patient, isolation=isolation):
        wait_until(lambda: ["1", "began"] in read_notes(notes))
        log.cancel("orders", "g", event_ids=ids, by="ada")
        wait_until(lambda: states(log) == [DONE if end is None else CANCELLED])
    assert ["1", "told"] in read_notes(notes)
    if end is not None:
        assert log.deliveries("orders", "g")[0].last_error == "cancelled by ada: cancelled; ended early"


def test_an_event_that_has_not_begun_is_not_called(log: penstock.Log, notes: Path) -> None:
    ids = append(log, 1, count=6)
    with engine(log, cancelled.patient, isolation="inline"):
        wait_until(lambda: ["1", "began"] in read_notes(notes))
        log.cancel("orders", "g", event_ids=[ids[2], ids[5]])
        log.cancel("orders", "g", event_ids=[ids[0]])
        wait_until(lambda: states(log) == [DONE, DONE, CANCELLED, DONE, DONE, CANCELLED])
    assert sorted(line[0] for line in read_notes(notes) if line[1] == "began") == ["1", "2", "4", "5"]


def test_a_key_that_halts_stops_at_a_cancelled_event(log: penstock.Log, notes: Path) -> None:
    ids = append(log, 1, count=3)
    with engine(log, cancelled.patient, isolation="inline", ordering="key", on_dead="halt"):
        wait_until(lambda: ["1", "began"] in read_notes(notes))
        log.cancel("orders", "g", event_ids=[ids[1]])
        log.cancel("orders", "g", event_ids=[ids[0]])
        wait_until(lambda: states(log)[:2] == [DONE, CANCELLED])
    assert states(log)[2] == ("PENDING", "blocked", 0) and len(read_notes(notes)) == 2
