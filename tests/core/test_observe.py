"""Observers hear what was committed, and one that fails hurts nobody."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.core.lease import Failure, Settled, Settlement
from penstock.core.observe import (
    CircuitClosed,
    CircuitOpened,
    EventsAppended,
    JobsRemoved,
    LeasesExpired,
    Observed,
    Observers,
    Operated,
    RunStopping,
    SchedulesRan,
    everyone,
)
from penstock.testing.clock import VirtualClock


@pytest.fixture
def heard() -> Iterator[list[Observed]]:
    found: list[Observed] = []
    unsubscribe = everyone.subscribe(found.append)
    yield found
    unsubscribe()


def test_an_action_is_observed_once_it_is_committed(heard: list[Observed], tmp_path: Path) -> None:
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.append("orders", {}, type="t")
        heard.clear()
        log.create_group("orders", "fraud")
        lease = log.claim("orders", "fraud", claimed_by="w")
        assert lease is not None
        lease.settle(dead={lease.events[0]: "no"})
        assert log.redrive("orders", "fraud", all=True, dry_run=True, by="me").count == 1
        assert heard == [], "nothing was changed yet"
        log.redrive("orders", "fraud", all=True, by="me")
        log.pause("orders", "fraud", by="me")
        with pytest.raises(penstock.UnknownGroup):
            log.pause("orders", "mail", by="me")
    assert heard == [
        Operated("redrive", "orders", "fraud", 1, "me"),
        Operated("pause", "orders", "fraud", None, "me"),
    ]


def test_an_observer_that_fails_is_logged_and_hurts_nobody(
    heard: list[Observed], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Observed) -> None:
        raise KeyError("metric")

    with caplog.at_level(logging.ERROR, "penstock"):
        Observers(broken, parent=everyone).emit(RunStopping())
    assert heard == [RunStopping()]
    assert "an observer failed on RunStopping" in caplog.text and "metric" in caplog.text


def test_whoever_unsubscribes_hears_nothing_more() -> None:
    found: list[Observed] = []
    observers = Observers()
    unsubscribe = observers.subscribe(found.append)
    observers.emit(RunStopping())
    unsubscribe()
    observers.emit(RunStopping())
    assert found == [RunStopping()]


def test_appends_are_observed_once_per_call(heard: list[Observed], clocked: penstock.Log) -> None:
    first = clocked.append("orders", {}, type="t")
    clocked.append("orders", {}, type="t", event_id=first.event_id)
    clocked.append_many("orders", [{"payload": n, "type": "t"} for n in range(5)])
    clocked.submit_many("a", [{"payload": 1}, {"payload": 2, "type": "b"}])
    assert heard == [
        EventsAppended("orders", 1, 0),
        EventsAppended("orders", 0, 1),
        EventsAppended("orders", 5, 0),
        EventsAppended("jobs:default:0:a", 1, 0),
        EventsAppended("jobs:default:0:b", 1, 0),
    ]


def test_expired_leases_schedules_and_retention_are_observed(
    heard: list[Observed], clocked: penstock.Log, clock: VirtualClock
) -> None:
    clocked.append_many("orders", [{"payload": n, "type": "t"} for n in range(3)])
    clocked.create_group("orders", "fraud", lease_seconds=5)
    clocked.claim("orders", "fraud", claimed_by="gone")
    clocked.schedule("often", "* * * * *", type="mail")
    clock.advance(120)
    heard.clear()
    assert clocked.reap() == 1
    assert heard == [LeasesExpired("orders/fraud", 1, Settled(0, 0, 0, 3))]
    heard.clear()
    assert len(clocked.tick_schedules()) == 1
    assert heard == [SchedulesRan(1)]
    job = clocked.claim_job("w", ["mail"])
    assert job is not None
    clocked.complete_job(job.id, "w", token=job.token)
    clocked.set_job_type("mail", keep_finished=0)
    clock.advance(120)
    heard.clear()
    clocked.remove_finished_jobs()
    assert heard == [JobsRemoved("jobs:default:0:mail", 1)]


def test_a_circuit_is_observed_when_it_opens_and_when_it_closes(
    heard: list[Observed], clocked: penstock.Log, clock: VirtualClock
) -> None:
    clocked.append_many("orders", [{"payload": n, "type": "t"} for n in range(2)])
    clocked.create_group("orders", "mail")
    heard.clear()
    for _ in range(2):
        lease = clocked.claim("orders", "mail", limit=1, claimed_by="w")
        assert lease is not None
        lease.apply(Settlement(released=frozenset(), upto=lease.row.low, unavailable=Failure("down", "down")))
        clock.advance(60)
    lease = clocked.claim("orders", "mail", limit=1, claimed_by="w")
    assert lease is not None
    lease.settle()
    assert heard == [CircuitOpened("orders/mail", "down"), CircuitClosed("orders/mail")]
