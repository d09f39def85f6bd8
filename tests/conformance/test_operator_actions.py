"""Operator actions: query, redrive, replay, rewind, kill, reschedule, each with an audit record."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all, state_by_event
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


@pytest.fixture
def mixed(clocked: penstock.Log, clock: VirtualClock) -> tuple[penstock.Log, list[object]]:
    """Six events: 0, 1 DEAD with different errors, 2 waiting for a retry, 3 PUBLISHED, 4 CLAIMED, 5 PENDING."""
    log = clocked
    ids = []
    for n in range(6):
        ids.append(log.append("orders", {"n": n}, type=f"order.{'ab'[n % 2]}").event_id)
        clock.advance(1)
    log.create_group("orders", "g", retry=penstock.Retry(jitter=0))
    first = log.claim("orders", "g", limit=4, claimed_by="w")
    assert first is not None
    first.settle(dead={ids[0]: ValueError("bad amount 7"), ids[1]: "timeout"}, failed={ids[2]: "later"})
    assert log.claim("orders", "g", limit=1, claimed_by="w-2") is not None
    return log, ids


def everything(url: str) -> list[object]:
    tables = [
        "events",
        "groups",
        "bindings",
        "leases",
        "returned",
        "deliveries",
        "attempt_log",
        "state",
        "audit",
        "tally",
    ]
    with raw(url) as sql:
        return [sorted(map(repr, sql(f"select * from penstock.{table}"))) for table in tables]


@pytest.mark.shows("K22")
def test_queries_by_state_type_time_error_and_id_change_nothing(
    mixed: tuple[penstock.Log, list[object]], clock: VirtualClock, log_url: str
) -> None:
    log, ids = mixed
    before = everything(log_url)

    def found(**filters: object) -> list[int]:
        return [ids.index(one.event_id) for one in log.deliveries("orders", "g", **filters)]  # type: ignore[arg-type]

    assert found() == [0, 1, 2, 3, 4, 5]
    assert found(state="DEAD") == [0, 1] and found(state="PENDING") == [2, 5]
    assert found(state="PUBLISHED") == [3] and found(state="CLAIMED") == [4]
    assert found(type="order.b") == [1, 3, 5]
    assert found(since=clock.start + timedelta(seconds=2), until=clock.start + timedelta(seconds=4)) == [2, 3]
    assert found(error="ValueError") == [0] and found(error="amount") == [0] and found(error="timeout") == [1]
    assert found(event_ids=[ids[4], ids[1]]) == [1, 4]
    one = log.delivery("orders", "g", ids[0])
    assert (one.json(), one.last_error, one.error_code) == ({"n": 0}, "bad amount 7", "ValueError")
    assert [attempt.outcome for attempt in one.history] == ["claimed", "dead"]
    assert [a.outcome for a in log.delivery("orders", "g", ids[3]).history] == ["claimed", "published"]
    log.stats(), log.groups(), log.streams(), log.read("orders")
    with pytest.raises(penstock.UnknownEvent):
        log.delivery("orders", "g", penstock.event_id("no such"))
    with pytest.raises(penstock.UnknownGroup):
        log.deliveries("orders", "nobody")
    with pytest.raises(penstock.InvalidInput):
        log.deliveries("orders", "g", state="LOST")
    assert everything(log_url) == before, "a query changed something"


@pytest.mark.shows("K22")
def test_pages_are_stable_while_deliveries_change_state(log: penstock.Log) -> None:
    ids = append_orders(log, 50)
    log.create_group("orders", "g")
    seen, after = [], 0
    while page := log.deliveries("orders", "g", after=after, limit=7):
        seen += [one.event_id for one in page]
        after = page[-1].offset
        lease = log.claim("orders", "g", limit=5, claimed_by="w")
        if lease is not None:
            lease.settle(failed={lease.events[0].event_id: "no"})
    assert seen == ids


@pytest.mark.shows("K23")
def test_the_dead_letter_queue_is_a_query(mixed: tuple[penstock.Log, list[object]], log_url: str) -> None:
    _, ids = mixed
    query = (
        "select e.payload, d.attempts, d.last_error, d.updated_at from penstock.deliveries d "
        'join penstock.events e on e."offset" = d."offset" '
        "where d.group_name = 'g' and d.state = 'DEAD' order by d.updated_at desc"
    )
    with raw(log_url) as sql:
        rows = sql(query)
        assert {(bytes(payload), attempts, error) for payload, attempts, error, _ in rows} == {
            (b'{"n":0}', 1, "bad amount 7"),
            (b'{"n":1}', 1, "timeout"),
        }
        times = [row[3] for row in rows]
        assert times == sorted(times, reverse=True)
        if sql.kind == "postgresql":
            sql("set enable_seqscan = off")
            plan = "\n".join(row[0] for row in sql("explain " + query))
            assert "deliveries_dead" in plan and "Sort" not in plan
        else:
            plan = " ".join(str(row[3]) for row in sql("explain query plan " + query))
            assert "penstock_deliveries_dead" in plan and "TEMP B-TREE" not in plan
    assert ids


@pytest.mark.shows("K23")
@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({"all": True}, [0, 1]),
        ({"error": "ValueError"}, [0]),
        ({"error": "timeout"}, [1]),
        ({"type": "order.b"}, [1]),
        ({"ids": [0, 3]}, [0]),
        ({"since": 1}, [1]),
        ({"until": 1}, [0]),
    ],
)
def test_redrive_by_any_filter_moves_exactly_what_matches(
    mixed: tuple[penstock.Log, list[object]],
    clock: VirtualClock,
    log_url: str,
    which: dict[str, object],
    expected: list[int],
) -> None:
    log, ids = mixed
    filters = dict(which)
    if "ids" in filters:
        filters["event_ids"] = [ids[n] for n in filters.pop("ids")]  # type: ignore[union-attr]
    for name in ("since", "until"):
        if name in filters:
            filters[name] = clock.start + timedelta(seconds=filters[name])  # type: ignore[arg-type]
    assert log.redrive("orders", "g", dry_run=True, **filters).count == len(expected)  # type: ignore[arg-type]
    assert [state for state in state_by_event(log).values()].count("DEAD") == 2, "a dry run moved something"
    assert log.redrive("orders", "g", by="ann", **filters).count == len(expected)  # type: ignore[arg-type]
    assert log.redrive("orders", "g", by="ann", **filters).count == 0, "moved twice"  # type: ignore[arg-type]
    for n in expected:
        shown = log.delivery("orders", "g", ids[n])
        assert (shown.state, shown.attempts, shown.failures, shown.reason) == ("PENDING", 0, 0, "redriven")
        assert [attempt.outcome for attempt in shown.history] == ["claimed", "dead", "redriven"]
    with raw(log_url) as sql:
        assert sql("select by, action, count from penstock.audit where action = 'redrive' order by id") == [
            ("ann", "redrive", len(expected)),
            ("ann", "redrive", 0),
        ]


@pytest.mark.shows("K23")
def test_redrive_needs_a_filter_and_gives_a_fresh_budget(clocked: penstock.Log) -> None:
    (one,) = append_orders(clocked, 1)
    clocked.create_group("orders", "g", retry=penstock.Retry(max_attempts=2, base_seconds=0, jitter=0))
    for lifecycle in range(2):
        for failures in (1, 2):
            lease = clocked.claim("orders", "g", claimed_by="w")
            assert lease is not None and lease.events[0].attempts == failures
            lease.settle(failed={one: "no"})
        assert clocked.delivery("orders", "g", one).state == "DEAD"
        with pytest.raises(penstock.FilterNeeded):
            clocked.redrive("orders", "g")
        assert clocked.redrive("orders", "g", all=True).count == 1, lifecycle


@pytest.mark.shows("K23")
def test_two_concurrent_redrives_move_each_delivery_once(make_log: MakeLog) -> None:
    log = make_log()
    ids = append_orders(log, 300)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=300, claimed_by="w")
    assert lease is not None
    lease.settle(dead=dict.fromkeys(ids, "no"))
    moved: list[int] = []
    start = threading.Barrier(4)

    def redrive() -> None:
        own = make_log()
        start.wait()
        moved.append(own.redrive("orders", "g", all=True).count)

    threads = [threading.Thread(target=redrive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(moved) == 300 and len(claim_and_settle_all(log)) == 300


@pytest.mark.shows("K24")
def test_replay_delivers_again_and_keeps_history(mixed: tuple[penstock.Log, list[object]], log_url: str) -> None:
    log, ids = mixed
    published_at = log.delivery("orders", "g", ids[3]).published_at
    assert log.replay("orders", "g", event_ids=ids, dry_run=True).count == 1
    assert log.replay("orders", "g", event_ids=ids, by="ann").count == 1
    shown = log.delivery("orders", "g", ids[3])
    assert (shown.state, shown.attempts, shown.published_at, shown.reason) == ("PENDING", 0, None, "replayed")
    assert published_at is not None and any(published_at.strftime("%H:%M:%S") in (a.error or "") for a in shown.history)
    lease = log.claim("orders", "g", limit=1, claimed_by="w")
    while lease is not None and lease.events[0].event_id != ids[3]:
        lease.settle()
        lease = log.claim("orders", "g", limit=1, claimed_by="w")
    assert lease is not None and (lease.events[0].attempts, lease.events[0].replays) == (1, 1)
    lease.settle()
    assert log.replay("orders", "g", event_ids=[ids[3]]).count == 1
    assert log.delivery("orders", "g", ids[3]).history[-1].replays == 1
    with raw(log_url) as sql:
        assert ("ann", "replay", 1) in sql("select by, action, count from penstock.audit")
    with pytest.raises(penstock.FilterNeeded):
        log.replay("orders", "g")


@pytest.mark.shows("K24")
@pytest.mark.parametrize("to", ["beginning", "offset", "time"])
@pytest.mark.parametrize("ordering", [None, "key"])
def test_rewind_moves_only_its_own_group(
    clocked: penstock.Log, clock: VirtualClock, to: str, ordering: str | None
) -> None:
    log = clocked
    early = [log.append("orders", {}, type="t", ordering_key=f"k{n}").event_id for n in range(5)]
    clock.advance(100)
    middle = clock.now()
    late = [log.append("orders", {}, type="t", ordering_key=f"k{n}").event_id for n in range(5)]
    for group in ("g", "other"):
        log.create_group("orders", group, ordering=ordering, lanes=2)
    claim_and_settle_all(log, group="other")
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    lease.settle(dead={lease.events[0].event_id: "no"})
    claim_and_settle_all(log)
    target = {"beginning": "beginning", "offset": log.read("orders")[4].offset, "time": middle}[to]
    expected = early + late if to == "beginning" else late
    dry = log.rewind("orders", "g", to=target, dry_run=True)  # type: ignore[arg-type]
    assert dry.count == len(expected) and claim_and_settle_all(log) == []
    assert log.rewind("orders", "g", to=target, by="ann").count == len(expected)  # type: ignore[arg-type]
    assert sorted(map(str, claim_and_settle_all(log))) == sorted(map(str, expected))
    assert claim_and_settle_all(log, group="other") == [] and set(state_by_event(log, group="other").values()) == {
        "PUBLISHED"
    }
    history = log.delivery("orders", "g", late[0]).history
    assert [attempt.outcome for attempt in history].count("published") == 2


@pytest.mark.shows("K24")
def test_rewind_ends_open_leases_and_returns_their_events(clocked: penstock.Log) -> None:
    log = clocked
    ids = append_orders(log, 10)
    log.create_group("orders", "g")
    held = log.claim("orders", "g", limit=6, claimed_by="w")
    assert held is not None
    target = log.read("orders")[2].offset
    log.rewind("orders", "g", to=target)
    with pytest.raises(penstock.LeaseLost):
        held.settle()
    assert sorted(map(str, claim_and_settle_all(log))) == sorted(map(str, ids)), (
        "events that the lease held below the target are missing"
    )


@pytest.mark.shows("K24")
def test_rewind_can_reset_the_state(clocked: penstock.Log) -> None:
    log = clocked
    append_orders(log, 1, ordering_key="k")
    log.create_group("orders", "g", keyed=True)
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    lease.settle(state={"k": {"n": 1}})
    log.rewind("orders", "g", to="beginning")
    assert log.state("orders", "g", "k") == {"n": 1}
    log.rewind("orders", "g", to="beginning", state="reset")
    assert log.state("orders", "g", "k") == {}


@pytest.mark.shows("K24")
def test_rewinding_past_what_was_pruned_is_an_error(log: penstock.Log) -> None:
    ids = append_orders(log, 10)
    log.create_group("orders", "g")
    log.create_group("orders", "slow")
    claim_and_settle_all(log)
    slow = log.claim("orders", "slow", limit=6, claimed_by="w")
    assert slow is not None
    slow.settle(dead={ids[4]: "no"})
    upto = log.read("orders")[7].offset
    assert log.prune("orders", upto=upto).count == 5, "unfinished events were pruned"
    assert [event.event_id for event in log.read("orders")] == [ids[4], *ids[6:]]
    with pytest.raises(penstock.Pruned):
        log.rewind("orders", "g", to="beginning")
    with pytest.raises(penstock.Pruned):
        log.rewind("orders", "g", to=log.read("orders")[0].offset)
    assert log.rewind("orders", "g", to=log.read("orders")[1].offset - 1).count == 4


@pytest.mark.shows("K25")
def test_pending_deliveries_can_be_killed_and_rescheduled(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    ids = append_orders(log, 6)
    log.create_group("orders", "g")
    due = clock.now() + timedelta(seconds=100)
    assert log.reschedule("orders", "g", event_ids=[ids[0], ids[3]], available_at=due).count == 2
    assert log.kill("orders", "g", event_ids=[ids[1]], reason="bad customer", by="ann").count == 1
    with pytest.raises(penstock.UnknownEvent):
        log.kill("orders", "g", event_ids=[ids[2], penstock.event_id("no such")])
    assert log.delivery("orders", "g", ids[2]).state == "PENDING", "some were killed, although one cannot be"
    assert claim_and_settle_all(log) == [ids[2], ids[4], ids[5]]
    clock.advance(100)
    assert claim_and_settle_all(log) == [ids[0], ids[3]]
    assert state_by_event(log)[ids[1]] == "DEAD"
    assert log.stats().groups[0].dead == 1 and log.stats().groups[0].lag == 0


def test_a_deleted_group_can_be_created_again(log: penstock.Log) -> None:
    ids = append_orders(log, 3)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=1, claimed_by="w")
    assert lease is not None
    with pytest.raises(penstock.InFlight):
        log.delete_group("orders", "g")
    lease.settle(dead={ids[0]: "no"})
    log.delete_group("orders", "g")
    with pytest.raises(penstock.UnknownGroup):
        log.claim("orders", "g", claimed_by="w")
    log.create_group("orders", "g")
    assert claim_and_settle_all(log) == ids


def test_creating_a_group_again_with_other_settings_is_refused(log: penstock.Log) -> None:
    made = log.create_group("orders", "g", types=["a.*"], headers={"x": "y"})
    assert log.create_group("orders", "g", types=["a.*"], headers={"x": "y"}) == made
    for other in ({}, {"types": ["b"]}, {"types": ["a.*"], "headers": {"x": "y"}, "ordering": "key"}):
        with pytest.raises(penstock.GroupExists):
            log.create_group("orders", "g", **other)  # type: ignore[arg-type]


@pytest.mark.shows("K33")
def test_stats_work_while_groups_are_created_and_deleted(make_log: MakeLog) -> None:
    other = make_log()
    append_orders(other, 3)
    other.create_group("orders", "stays")
    seen: list[str] = []

    def meanwhile(when: str, block: str) -> None:
        if when == "after" and block != "commit":
            other.create_group("orders", f"g{len(seen)}")
            if seen:
                other.delete_group("orders", f"g{len(seen) - 1}")
            seen.append(block)

    shown = make_log(hook=meanwhile).stats().groups
    assert len(seen) > 3 and [one.group for one in shown] == ["stays"]


@pytest.mark.shows("K33")
def test_stats_are_taken_from_one_snapshot(make_log: MakeLog, clock: VirtualClock) -> None:
    """Claims and appends between two statements of stats are not counted, and never as published."""
    other = make_log(clock=clock)
    other.create_group("orders", "g")
    seen: list[str] = []

    def meanwhile(when: str, block: str) -> None:
        if when == "after" and block != "commit":
            other.claim("orders", "g", claimed_by="w")
            append_orders(other, 10)
            seen.append(block)

    watching = make_log(clock=clock, hook=meanwhile)
    for _ in range(3):
        append_orders(other, 10)
        before = other.stats().groups
        seen.clear()
        assert watching.stats().groups == before and len(seen) > 3
