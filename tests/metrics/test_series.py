"""Numbers over time: what is counted, when, and what a series shows of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core import limits
from penstock.engine.rounds import rounds
from penstock.errors import InvalidInput, UnknownGroup
from penstock.log import record_metrics
from penstock.log.series import Point, Series
from penstock.testing import VirtualClock
from tests.support.plain_archive import archive
from tests.support.raw_sql import raw

pytestmark = pytest.mark.shows("O10")
GAUGES = ("lag", "oldest_seconds", "pending", "claimed", "retrying", "dead_letters")


def append(log: penstock.Log, count: int, stream: str = "orders") -> None:
    log.append_many(stream, [{"payload": {"n": n}, "type": "t"} for n in range(count)])


def settle(log: penstock.Log, limit: int, group: str = "g", **outcomes: int) -> None:
    """Claim some events; so many fail or die, the others are done."""
    lease = log.claim("orders", group, limit=limit, claimed_by="w")
    assert lease is not None and len(lease.events) == limit
    ids = [event.event_id for event in lease.events]
    failed = ids[: outcomes.get("failed", 0)]
    dead = ids[len(failed) : len(failed) + outcomes.get("dead", 0)]
    lease.settle(failed=dict.fromkeys(failed, "no"), dead=dict.fromkeys(dead, "never"))


def minutes(log: penstock.Log, clock: VirtualClock, group: str | None = "g") -> list[Point]:
    """All minutes since the clock began, the running one included."""
    return list(log.series("orders", group, since=clock.start, until=clock.now(), step_seconds=60).points)


def flows(points: list[Point]) -> list[tuple[int | None, ...]]:
    return [(one.published, one.failed, one.dead, one.released) for one in points]


def count(url: str, sql: str, *params: Any) -> int:
    with raw(url) as run:
        return int(run(sql, *params)[0][0])


@pytest.fixture
def orders(clocked: penstock.Log, clock: VirtualClock) -> penstock.Log:
    clocked.create_group("orders", "g", retry=penstock.Retry(base_seconds=300, jitter=0))
    append(clocked, 20)
    clock.advance(1)
    return clocked


def test_flows_are_exact_before_and_after_they_are_recorded(orders: penstock.Log, clock: VirtualClock) -> None:
    settle(orders, 4, failed=1, dead=1)
    clock.advance(60)
    settle(orders, 3)
    lease = orders.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    lease.release()
    clock.advance(5)
    wanted = [(2, 1, 1, 0), (3, 0, 0, 2)]
    assert flows(minutes(orders, clock)) == wanted
    assert orders.record_metrics() is True
    assert flows(minutes(orders, clock)) == wanted
    settle(orders, 1)
    assert flows(minutes(orders, clock)) == [wanted[0], (4, 0, 0, 2)]
    clock.advance(60)
    assert orders.record_metrics() and not orders.record_metrics()
    assert flows(minutes(orders, clock)) == [wanted[0], (4, 0, 0, 2), (0, 0, 0, 0)]


def test_each_minute_has_one_row_however_often_it_is_recorded(orders: penstock.Log, clock: VirtualClock) -> None:
    second = penstock.open(orders.store.url, clock=clock)
    for _ in range(8):
        settle(orders, 1)
        clock.advance(20)
        assert not (orders.record_metrics() and second.record_metrics())
    second.close()
    sql = "select max(n) from (select count(*) as n from penstock.metric where group_id is not null group by at) x"
    assert count(orders.store.url, sql) == 1
    assert sum(one.published or 0 for one in minutes(orders, clock)) == 8


def test_minutes_that_nobody_recorded_have_flows_and_no_samples(orders: penstock.Log, clock: VirtualClock) -> None:
    orders.record_metrics()
    for _ in range(10):
        clock.advance(720)
        settle(orders, 1)
    assert orders.record_metrics()
    points = minutes(orders, clock)
    done = [n for n, one in enumerate(points) if one.published]
    assert len(done) == 10 and done[0] == 12 and sum(one.published or 0 for one in points) == 10
    assert all(one.published is not None for one in points)
    sampled = [n for n, one in enumerate(points) if one.lag is not None]
    assert sampled == [0, 120], "nobody sampled between them"
    assert (points[0].lag, points[120].lag) == (20, 10)
    assert all(getattr(one, name) is None for one in points[1:120] for name in GAUGES)


def test_a_lease_that_stays_open_is_counted_when_it_ends(orders: penstock.Log, clock: VirtualClock) -> None:
    long = orders.claim("orders", "g", limit=5, claimed_by="w", lease_seconds=3600)
    assert long is not None
    for _ in range(5):
        clock.advance(60)
        settle(orders, 1)
        orders.record_metrics()
    assert sum(one.published or 0 for one in minutes(orders, clock)) == 5
    long.settle()
    points = minutes(orders, clock)
    assert points[-1].published == 6 and sum(one.published or 0 for one in points) == 10
    clock.advance(60)
    orders.record_metrics()
    assert flows(minutes(orders, clock))[:-1] == flows(points)


def test_an_expired_lease_counts_what_became_of_its_events(orders: penstock.Log, clock: VirtualClock) -> None:
    orders.claim("orders", "g", limit=1, claimed_by="w", lease_seconds=10)
    orders.claim("orders", "g", limit=3, claimed_by="w", lease_seconds=10)
    clock.advance(60)
    orders.record_metrics()
    assert orders.reap() == 2
    assert flows(minutes(orders, clock)) == [(0, 0, 0, 0), (0, 1, 0, 3)]


def test_samples_of_a_group_without_work_are_zero_and_of_a_new_one_none(
    orders: penstock.Log, clock: VirtualClock
) -> None:
    settle(orders, 20, failed=2, dead=3)
    orders.record_metrics()
    (first,) = minutes(orders, clock)
    assert (first.lag, first.pending, first.claimed, first.retrying, first.dead_letters) == (2, 2, 0, 2, 3)
    assert first.oldest_seconds == 1.0
    clock.advance(600)
    settle(orders, 2)
    orders.redrive("orders", "g", all=True, by="me")
    settle(orders, 3)
    clock.advance(60)
    orders.create_group("orders", "late", start="end")
    orders.record_metrics()
    points = minutes(orders, clock)
    assert [getattr(points[-1], name) for name in GAUGES] == [0, 0.0, 0, 0, 0, 0]
    late = minutes(orders, clock, "late")
    assert late[0].lag is None and late[-1].lag == 0


def test_what_is_appended_is_known_between_samples_only(orders: penstock.Log, clock: VirtualClock) -> None:
    assert orders.record_metrics()
    clock.advance(30)
    append(orders, 3)
    assert [one.appended for one in minutes(orders, clock, None)] == [3], "counted up to now"
    clock.advance(30)
    orders.record_metrics()
    append(orders, 4)
    clock.advance(60)
    orders.record_metrics()
    clock.advance(180)  # nobody samples twice
    append(orders, 5)
    orders.record_metrics()
    clock.advance(60)
    orders.record_metrics()
    points = minutes(orders, clock, None)
    assert [one.appended for one in points] == [3, 4, None, None, None, 0, 0]
    assert all(one.published is None and one.lag is None for one in points)
    hour = orders.series("orders", since=clock.start, until=clock.now(), step_seconds=3600).points
    assert [one.appended for one in hour] == [12], "both ends are known, so their difference is"


def test_removed_events_were_appended_all_the_same(orders: penstock.Log, clock: VirtualClock) -> None:
    orders.record_metrics()
    for _ in range(3):
        append(orders, 6)
        settle(orders, 6)
        clock.advance(60)
        orders.prune("orders", before=clock.now())
    assert [one.appended for one in minutes(orders, clock, "g")] == [6, 6, 6, 0]


def test_restored_events_were_appended_once(orders: penstock.Log, clock: VirtualClock, tmp_path: Path) -> None:
    orders.record_metrics()
    append(orders, 6)
    clock.advance(60)
    orders.record_metrics()
    settle(orders, 26)
    archive(orders, "orders", tmp_path)
    assert orders.prune("orders", upto=orders.end()).count == 26
    clock.advance(60)
    orders.record_metrics()
    assert orders.restore("orders").events == 26
    clock.advance(60)
    orders.record_metrics()
    assert [one.appended for one in minutes(orders, clock, None)] == [6, 0, 0, 0]


def test_leases_are_counted_on_their_way_out(orders: penstock.Log, clock: VirtualClock) -> None:
    """Prune and job retention remove leases that nobody has counted."""
    orders.record_metrics()
    for _ in range(5):
        settle(orders, 2)
    held = orders.claim("orders", "g", limit=1, claimed_by="w", lease_seconds=600)
    assert held is not None
    orders.prune("orders", before=clock.now() + timedelta(seconds=1))
    assert count(orders.store.url, "select count(*) from penstock.leases") < 6
    assert flows(minutes(orders, clock)) == [(10, 0, 0, 0)]
    clock.advance(60)
    orders.record_metrics()
    held.settle()
    clock.advance(60)
    orders.record_metrics()
    assert flows(minutes(orders, clock)) == [(10, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0)]


def test_a_lease_that_was_open_and_removed_is_counted_once(orders: penstock.Log, clock: VirtualClock) -> None:
    held = orders.claim("orders", "g", limit=2, claimed_by="w", lease_seconds=600)
    assert held is not None
    settle(orders, 1)
    settle(orders, 1)
    orders.record_metrics()  # the mark is above the open one
    held.settle()
    orders.prune("orders", upto=100)
    clock.advance(60)
    orders.record_metrics()
    assert flows(minutes(orders, clock)) == [(4, 0, 0, 0), (0, 0, 0, 0)]


def test_finished_jobs_that_leave_stay_counted(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.declare_job("mail", keep_finished=0)
    clocked.submit_many("mail", [{"payload": {}} for _ in range(6)])
    for job in clocked.claim_jobs("w", ["mail"], limit=4):
        clocked.complete_job(job.id, "w", token=job.token)
    clock.advance(30)
    while clocked.remove_finished_jobs().more:
        pass
    stream = "jobs:default:0:mail"
    points = clocked.series(stream, "workers", since=clock.start, until=clock.now()).points
    assert [one.published for one in points] == [4]
    clock.advance(60)
    clocked.record_metrics()
    points = clocked.series(stream, "workers", since=clock.start, until=clock.now()).points
    assert [one.published for one in points] == [4, 0] and points[-1].lag == 2


def test_a_deleted_group_takes_its_numbers_along(orders: penstock.Log, clock: VirtualClock) -> None:
    settle(orders, 2)
    orders.record_metrics()
    clock.advance(60)
    settle(orders, 2)
    orders.record_metrics()
    orders.delete_group("orders", "g")
    for table in ("metric", "metric_mark"):
        assert count(orders.store.url, f"select count(*) from penstock.{table} where group_id is not null") == 0
    orders.create_group("orders", "g")
    assert sum(one.published or 0 for one in minutes(orders, clock)) == 0


def test_doubled_lanes_lose_no_lease(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.create_group("orders", "g", ordering="key", lanes=2)
    clock.advance(1)
    events = [{"payload": {}, "type": "t", "ordering_key": f"k{n}"} for n in range(40)]
    clocked.append_many("orders", events)

    def drain() -> None:
        while (lease := clocked.claim("orders", "g", limit=3, claimed_by="w")) is not None:
            lease.settle()

    clocked.record_metrics()
    drain()
    clocked.double_lanes("orders", "g")
    clocked.append_many("orders", events)
    drain()
    clocked.double_lanes("orders", "g")
    assert flows(minutes(clocked, clock)) == [(80, 0, 0, 0)]
    clock.advance(60)
    clocked.record_metrics()
    clocked.append_many("orders", events)
    drain()
    clock.advance(60)
    clocked.record_metrics()
    assert flows(minutes(clocked, clock)) == [(80, 0, 0, 0), (40, 0, 0, 0), (0, 0, 0, 0)]


def test_more_leases_than_a_step_counts(
    orders: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round counts in steps; a series that would have to count too many itself says that it does not know."""
    for name, value in (("METRIC_LEASES", 3), ("METRIC_LEASES_LEAST", 3), ("METRIC_STEPS", 1)):
        monkeypatch.setattr(limits, name, value)
    for _ in range(10):
        settle(orders, 1)
    monkeypatch.setattr(limits, "METRIC_UNCOUNTED", 4)
    assert flows(minutes(orders, clock)) == [(None,) * 4]
    orders.record_metrics()
    assert flows(minutes(orders, clock)) == [(None,) * 4], "four of ten are left"
    assert orders.sparklines(points=2)["orders", "g"] == (None, None)
    clock.advance(60)
    orders.record_metrics()
    assert flows(minutes(orders, clock)) == [(10, 0, 0, 0), (0, 0, 0, 0)]
    for _ in range(5):
        clock.advance(60)
        settle(orders, 1)
    points = minutes(orders, clock)
    assert [one.published for one in points[:2]] == [10, None] and points[-1].published is None


def test_a_group_that_has_just_as_many_leases_as_a_step_counts(
    orders: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRIC_LEASES", 3)
    monkeypatch.setattr(limits, "METRIC_LEASES_LEAST", 3)
    for steps in (50, 0):
        monkeypatch.setattr(limits, "METRIC_STEPS", steps)
        for _ in range(3):
            settle(orders, 1)
        clock.advance(60)
        orders.record_metrics()
        if not steps:
            clock.advance(60)
            orders.record_metrics()
        assert count(orders.store.url, "select count(*) from penstock.metric_mark where behind = (1 = 1)") == 0
    assert [one.published for one in minutes(orders, clock)] == [3, 3, 0, 0]


def test_engines_record_beside_their_work(orders: penstock.Log) -> None:
    (one,) = [one for one in rounds(orders, 5.0) if one.name == "record metrics"]
    assert one.every_seconds == limits.METRIC_SECONDS
    one.next_at = 0.0
    one.tick()
    assert one.trouble == "" and orders.record_metrics() is False, "it was recorded already"


def test_old_numbers_are_folded_and_no_count_is_lost(orders: penstock.Log, clock: VirtualClock) -> None:
    append(orders, 200)
    for _ in range(90):
        settle(orders, 1)
        orders.record_metrics()
        clock.advance(60)

    def widths() -> list[tuple[int, int]]:
        with raw(orders.store.url) as sql:
            sums = sql(
                "select seconds, cast(sum(published) as integer) from penstock.metric group by seconds order by 1"
            )
        return [(int(seconds), int(done)) for seconds, done in sums if done]

    def totals(step: int) -> list[int | None]:
        until = clock.start + timedelta(hours=2)
        points = orders.series("orders", "g", since=clock.start, until=until, step_seconds=step).points
        return [one.published for one in points]

    hours = totals(3600)
    assert hours == [60, 30]
    before = orders.series("orders", "g", since=clock.start, until=clock.now(), step_seconds=600).points
    clock.advance(2 * 86_400 + 3600)
    orders.record_metrics()
    assert widths() == [(600, 90)] and totals(3600) == hours
    after = orders.series("orders", "g", since=clock.start, until=before[-1].at, step_seconds=600).points
    assert after[:8] == before[:8], "flows, the largest samples and what was appended stay as they were"
    clock.advance(30 * 86_400)
    orders.record_metrics()
    assert widths() == [(3600, 90)] and totals(3600) == hours
    clock.advance(370 * 86_400)
    orders.record_metrics()
    assert widths() == []
    assert count(orders.store.url, "select count(*) from penstock.metric_round") == 3, "of three later rounds"


Refused = tuple[Callable[[datetime], dict[str, Any]], str]
REFUSED: list[Refused] = [
    (lambda now: {"since": now + timedelta(hours=1)}, "past"),
    (lambda now: {"since": now, "until": now - timedelta(hours=1)}, "past"),
    (lambda now: {"since": now - timedelta(hours=1), "until": now - timedelta(hours=2)}, "after since"),
    (lambda now: {"since": now - timedelta(days=401)}, "400 days"),
    (lambda now: {"until": datetime.min.replace(tzinfo=UTC)}, "until lies more than 400 days"),
    (lambda now: {"since": datetime.max.replace(tzinfo=UTC), "until": datetime.max.replace(tzinfo=UTC)}, "past"),
    (lambda now: {"step_seconds": 90}, "multiple of 60"),
    (lambda now: {"step_seconds": 10**30}, "at least 60"),
    (lambda now: {"step_seconds": 30}, "at least 60"),
    (lambda now: {"step_seconds": True}, "at least 60"),
    (lambda now: {"step_seconds": "60"}, "at least 60"),
    (lambda now: {"since": now - timedelta(days=3), "step_seconds": 300}, "multiple of 600"),
    (lambda now: {"since": now - timedelta(days=40), "step_seconds": 1200}, "multiple of 3600"),
    (lambda now: {"since": now - timedelta(hours=30), "step_seconds": 60}, "1800 points.*at least 120"),
    (lambda now: {"since": now - timedelta(seconds=59), "step_seconds": 3600}, "complete"),
    (lambda now: {"since": datetime(2026, 1, 1)}, "time zone"),
]


def test_windows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    clock = VirtualClock()
    clock.advance(1800)
    with penstock.open(f"sqlite:///{tmp_path}/log.db", clock=clock) as log:
        log.create_group("orders", "g")
        for arguments, words in REFUSED:
            with pytest.raises(InvalidInput, match=words):
                log.series("orders", "g", **arguments(clock.now()))
        with pytest.raises(InvalidInput):
            log.sparklines(since=datetime.min.replace(tzinfo=UTC))


def test_a_series_without_arguments_is_the_last_hour(orders: penstock.Log, clock: VirtualClock) -> None:
    clock.advance(3 * 3600 - 1)
    found = orders.series("orders", "g")
    assert isinstance(found, Series) and (found.stream, found.group) == ("orders", "g")
    assert (found.since, found.until) == (clock.now() - timedelta(hours=1), clock.now())
    assert found.step_seconds == 60 and len(found.points) == 60
    for days in (1, 7, 90, 399):
        clock.advance(days * 86_400)
        long = orders.series("orders", "g", since=clock.now() - timedelta(days=days))
        assert 50 <= len(long.points) <= 120, days
    with pytest.raises(UnknownGroup):
        orders.series("orders", "nobody")


def test_sparklines_show_all_groups_and_what_is_recorded(orders: penstock.Log, clock: VirtualClock) -> None:
    orders.create_group("orders", "idle")
    settle(orders, 5)
    clock.advance(119)
    settle(orders, 3)
    orders.record_metrics()
    clock.advance(60)
    found = orders.sparklines(since=clock.now() - timedelta(minutes=3), points=3)
    assert found == {("orders", "g"): (5, 0, None), ("orders", "idle"): (0, 0, None)}
    orders.record_metrics()
    assert orders.sparklines(since=clock.now() - timedelta(minutes=3), points=3)["orders", "g"] == (5, 0, 3)
    assert len(orders.sparklines()["orders", "g"]) == 30
    for points in (0, 1501, True, "3"):
        with pytest.raises(InvalidInput):
            orders.sparklines(points=points)  # type: ignore[arg-type]


@pytest.mark.shows("K22")
def test_looking_at_numbers_writes_nothing(orders: penstock.Log, clock: VirtualClock) -> None:
    settle(orders, 5)
    orders.record_metrics()
    clock.advance(90)
    settle(orders, 5)
    tables = ("metric", "metric_mark", "metric_round", "metric_turn", "metric_sampled", "metric_removed")

    def everything() -> list[Any]:
        with raw(orders.store.url) as sql:
            return [sorted(map(str, sql(f"select * from penstock.{table}"))) for table in tables]

    before = everything()
    orders.series("orders", "g")
    orders.series("orders")
    orders.sparklines()
    assert everything() == before


def test_a_round_that_is_killed_anywhere_is_made_up_for(orders: penstock.Log, clock: VirtualClock) -> None:
    class Killed(Exception):
        pass

    done, steps = 0, 0
    for stop in range(1, 40):
        clock.advance(60)
        append(orders, 1)
        settle(orders, 1)
        done += 1
        steps = 0

        def kill(when: str, block: str, stop: int = stop) -> None:
            nonlocal steps
            steps += 1
            if steps == stop:
                raise Killed

        orders.store.hook = kill
        try:
            orders.record_metrics()
        except Killed:
            orders.store.hook = None
            assert sum(one.published or 0 for one in minutes(orders, clock)) == done
        else:
            break
        finally:
            orders.store.hook = None
    assert steps > 20, "every statement of a round was tried"
    clock.advance(60)
    orders.record_metrics()
    assert [one.published for one in minutes(orders, clock)] == [0] + [1] * done + [0]


def test_a_clock_that_was_set_back_does_not_stop_recording(orders: penstock.Log, clock: VirtualClock) -> None:
    clock.advance(86_400)
    assert orders.record_metrics()
    clock.advance(-86_000)
    settle(orders, 2)
    assert orders.record_metrics()
    assert sum(one.published or 0 for one in minutes(orders, clock)) == 2


def test_somebody_elses_turn_is_not_waited_for(postgres_log: penstock.Log) -> None:
    append(postgres_log, 1)
    with raw(postgres_log.store.url) as sql:
        sql("begin")
        sql("select 1 from penstock.metric_turn for update")
        assert postgres_log.record_metrics() is False
        sql("rollback")
    assert postgres_log.record_metrics() is True
    assert record_metrics.record(postgres_log.store) is False
