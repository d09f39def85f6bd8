"""`log.problems()`: each kind of trouble is named when it is there, and nothing is named that is none."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import psycopg
import pytest

import penstock
from penstock.log import problems
from penstock.log.runs import NewRun
from penstock.testing import VirtualClock
from tests.support.logs import MakeLog

pytestmark = pytest.mark.shows("O02", "O11")
LONG = 2 * problems.UNSERVED_SECONDS


@pytest.fixture
def shop(clocked: penstock.Log) -> penstock.Log:
    """A group that nobody works for, with three events."""
    clocked.create_group("orders", "fraud", retry=penstock.Retry(max_attempts=1))
    clocked.append_many("orders", [{"payload": n, "type": "t"} for n in range(3)])
    return clocked


def kinds(log: penstock.Log) -> list[str]:
    return [one.kind for one in log.problems()]


def claimed(log: penstock.Log) -> penstock.Lease:
    lease = log.claim("orders", "fraud", claimed_by="w", limit=1)
    assert lease is not None
    return lease


def test_a_group_that_nobody_works_for(shop: penstock.Log, clock: VirtualClock) -> None:
    assert kinds(shop) == [], "a worker may still come"
    clock.advance(LONG)
    (found,) = shop.problems()
    assert (found.kind, found.grave, found.stream, found.group) == ("unserved", True, "orders", "fraud")
    assert "3 wait" in found.what and found.since is None
    claimed(shop).settle()
    assert kinds(shop) == []
    clock.advance(LONG)
    (found,) = shop.problems()
    assert "2 wait" in found.what and found.since == clock.now() - timedelta(seconds=LONG)
    lease = claimed(shop)
    assert kinds(shop) == []
    lease.settle()
    claimed(shop).settle()
    clock.advance(LONG)
    assert kinds(shop) == [], "there is nothing to do"


def test_what_is_dated_in_the_future_needs_nobody_yet(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.create_group("orders", "fraud")
    clocked.append("orders", 1, type="t", available_at=clock.now() + timedelta(seconds=5 * LONG))
    clock.advance(LONG)
    assert kinds(clocked) == []
    clock.advance(5 * LONG)
    assert kinds(clocked) == ["unserved"]


def test_one_that_is_paused_is_not_called_unserved(shop: penstock.Log, clock: VirtualClock) -> None:
    clock.advance(LONG)
    shop.pause("orders", "fraud", reason="the bank moves", by="ada")
    (found,) = shop.problems()
    assert (found.kind, found.grave, found.since) == ("paused", True, clock.now())
    assert "ada" in found.what and "the bank moves" in found.what
    shop.resume("orders", "fraud")
    assert kinds(shop) == ["unserved"]


def test_a_target_that_is_down(shop: penstock.Log, clock: VirtualClock) -> None:
    clock.advance(LONG)
    lease = claimed(shop)
    lease.settle(
        released=[one.event_id for one in lease.events], unavailable=penstock.Unavailable("the bank is closed")
    )
    (found,) = shop.problems()
    assert (found.kind, found.grave, found.since) == ("circuit", True, clock.now())
    assert "the bank is closed" in found.what


def test_a_lease_that_nobody_takes_back(shop: penstock.Log, clock: VirtualClock) -> None:
    lease = claimed(shop)
    clock.advance(lease.expires_at.timestamp() - clock.now().timestamp() + 1)
    (found,) = shop.problems()
    assert (found.kind, found.grave, found.since) == ("expired", True, lease.expires_at) and "w" in found.what
    shop.reap()
    assert "expired" not in kinds(shop)


def test_deaths_of_the_last_hour(shop: penstock.Log, clock: VirtualClock) -> None:
    lease = claimed(shop)
    lease.settle(dead={one.event_id: "no" for one in lease.events})
    (found,) = shop.problems()
    assert (found.kind, found.grave) == ("dying", False) and found.what.startswith("1 delivery died")
    clock.advance(problems.DIED_SECONDS + 1)
    assert "dying" not in kinds(shop)


def test_keys_that_fail_stop_a_lane(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(problems, "BLOCKED_PER_LANE", 3)
    clocked.create_group("orders", "fraud", ordering="key", lanes=1)
    clocked.append_many("orders", [{"payload": n, "type": "t", "ordering_key": "k"} for n in range(6)])
    for _ in range(2):
        while (lease := clocked.claim("orders", "fraud", claimed_by="w")) is not None:
            lease.settle(failed={lease.events[0].event_id: "no"})
        clock.advance(1)
    assert "blocked" in kinds(clocked)
    monkeypatch.setattr(problems, "BLOCKED_PER_LANE", 300)
    assert "blocked" not in kinds(clocked)


def test_a_run_without_a_heartbeat(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.start_run(NewRun("shop", None, "local", "1.0", "host-7", 4711, ()))
    assert kinds(clocked) == []
    clock.advance(problems.RUN_LOST_SECONDS + 1)
    (found,) = clocked.problems()
    assert (found.kind, found.grave) == ("lost_run", False) and "host-7" in found.what


def test_somebody_holds_the_horizon(postgres_log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "HELD_SECONDS", 0.0)
    with penstock.open(postgres_log_url) as log, psycopg.connect(postgres_log_url, application_name="loader") as other:
        assert kinds(log) == []
        log.append("orders", 1, type="t", connection=other)
        (found,) = log.problems()
        assert (found.kind, found.grave) == ("horizon", True) and "loader" in found.what
        other.commit()
        assert kinds(log) == []


def test_many_groups_in_trouble_take_as_many_statements_as_one(make_log: MakeLog, clock: VirtualClock) -> None:
    """On a bad day the page does not hurt the database more than on a good one."""
    statements: Counter[str] = Counter()

    def hook(when: str, block: str) -> None:
        statements[block] += when == "before"

    log = make_log(clock=clock, hook=hook)
    log.append("orders", 1, type="t")
    used = []
    for many in (1, 30):
        for number in range(many):
            log.create_group("orders", f"g{number:02}")
        clock.advance(LONG)
        statements.clear()
        assert kinds(log) == ["unserved"] * many
        used.append(dict(statements))
    assert used[0] == used[1]
