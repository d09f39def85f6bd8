"""Settle: only the lease's holder may, once; failures are retried at a stored time; expired leases come back."""

from __future__ import annotations

from datetime import timedelta

import pytest

import penstock
from penstock.core.lease import Failure, Settlement
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all, claim_lease, state_by_event
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


def dump(url: str) -> list[object]:
    """Every row of every table that a settle may change."""
    tables = ("leases", "deliveries", "returned", "attempt_log", "state", "audit", "groups", "bindings", "tally")
    with raw(url) as sql:
        return [sorted(map(repr, sql(f"select * from penstock.{table}"))) for table in tables]


@pytest.mark.shows("K12")
def test_backoff_follows_the_formula_and_is_stored(make_log: MakeLog, clock: VirtualClock) -> None:
    log = make_log(clock=clock)
    (one,) = append_orders(log, 1)
    retry = penstock.Retry(max_attempts=6, base_seconds=2, factor=3, cap_seconds=20, jitter=0)
    log.create_group("orders", "g", retry=retry)
    for delay in (2, 6, 18, 20, 20):
        claim_lease(log).settle(failed={one: "no"})
        assert log.delivery("orders", "g", one).available_at == clock.now() + timedelta(seconds=delay)
        log.close()  # no process needs to survive for this
        log = make_log(clock=clock)
        clock.advance(delay - 0.001)
        assert log.claim("orders", "g", claimed_by="w") is None
        clock.advance(0.001)
    claim_lease(log).settle(failed={one: "no"})
    assert log.delivery("orders", "g", one).state == "DEAD"


@pytest.mark.shows("K12")
def test_jitter_takes_off_at_most_its_share(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 200)
    clocked.create_group("orders", "g", retry=penstock.Retry(base_seconds=100, jitter=0.5))
    claim_lease(clocked, 200).settle(failed=dict.fromkeys(ids, "no"))
    waits = [
        (one.available_at - clock.now()).total_seconds()
        for one in clocked.deliveries("orders", "g")
        if one.available_at is not None
    ]
    assert len(waits) == 200 and all(50 < wait <= 100 for wait in waits) and len(set(waits)) > 100


@pytest.mark.shows("K13")
def test_attempts_count_claims_and_the_budget_counts_failures(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    (one,) = append_orders(log, 1)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=2, base_seconds=0, jitter=0))
    seen = []
    for _ in range(3):
        lease = claim_lease(log)
        seen.append(lease.events[0].attempts)
        lease.release()
    lease = claim_lease(log)
    seen.append(lease.events[0].attempts)
    lease.settle(failed={one: "first"})
    shown = log.delivery("orders", "g", one)
    assert seen == [1, 2, 3, 4] and (shown.state, shown.attempts, shown.failures) == ("PENDING", 4, 1)
    claim_lease(log).settle(failed={one: "second"})
    shown = log.delivery("orders", "g", one)
    assert (shown.state, shown.attempts, shown.failures) == ("DEAD", 5, 2)
    outcomes = ["released", "released", "released", "failed", "dead"]
    assert [line.outcome for line in shown.history] == [word for one in outcomes for word in ("claimed", one)]


@pytest.mark.shows("K13")
def test_too_old_is_dead_and_retry_later_sets_the_delay(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    old, late = append_orders(log, 2)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=99, max_age_seconds=60, base_seconds=1, jitter=0))
    claim_lease(log).settle(failed={old: "young", late: penstock.RetryLater(30)})
    assert log.delivery("orders", "g", late).available_at == clock.now() + timedelta(seconds=30)
    assert log.delivery("orders", "g", old).state == "PENDING"
    clock.advance(60)
    claim_lease(log).settle(failed={old: "old", late: "old"})
    assert set(state_by_event(log).values()) == {"DEAD"}


@pytest.mark.shows("K14")
def test_permanent_is_dead_at_once_and_stays_dead(clocked: penstock.Log, clock: VirtualClock) -> None:
    first, second = append_orders(clocked, 2)
    clocked.create_group("orders", "g")
    answer = claim_lease(clocked).settle(failed={first: penstock.Permanent("never")}, dead={second: "gone"})
    assert answer == penstock.Settled(0, 0, 2, 0)
    shown = clocked.delivery("orders", "g", first)
    assert (shown.state, shown.last_error, shown.error_code, shown.failures) == ("DEAD", "never", "Permanent", 1)
    for _ in range(5):
        clock.advance(10 * 86_400)
        assert clocked.claim("orders", "g", claimed_by="w") is None
        clocked.reap()


@pytest.mark.shows("K15")
@pytest.mark.parametrize("how", ["reaped", "expired", "released", "rewound", "settled"])
def test_a_stale_token_changes_nothing(clocked: penstock.Log, clock: VirtualClock, log_url: str, how: str) -> None:
    log = clocked
    ids = append_orders(log, 3)
    log.create_group("orders", "g", ordering="key", lanes=1)
    stale = claim_lease(log, worker="same")
    if how in ("reaped", "expired"):
        clock.advance(61)
        if how == "reaped":
            log.reap()
            claim_lease(log, worker="same")  # the new holder has the same name, which must not matter
    elif how == "released":
        stale.release()
    elif how == "rewound":
        log.rewind("orders", "g", to="beginning")
    else:
        stale.settle()
    before = dump(log_url)
    attempts = [
        lambda: stale.settle(failed={ids[0]: "late"}),
        lambda: stale.settle(state={"k": {"n": 1}}, emit=[{"stream": "out", "payload": {}, "type": "t"}]),
        stale.extend,
        stale.release,
    ]
    if how != "settled":  # there it is a repeated settle, which returns the first answer
        attempts.append(stale.settle)
    for attempt in attempts:
        with pytest.raises((penstock.LeaseLost, penstock.SettleMismatch)):
            attempt()
    assert dump(log_url) == before and log.read("out") == []


@pytest.mark.shows("K15")
def test_a_wrong_token_on_a_live_lease_is_refused(log: penstock.Log) -> None:
    from penstock.core.lease import Settlement

    append_orders(log, 1)
    log.create_group("orders", "g")
    lease = claim_lease(log)
    for token in (0, lease.token + 1, lease.id):
        for said in (Settlement(), Settlement(upto=lease._row.high)):  # both code paths
            with pytest.raises(penstock.LeaseLost):
                log.settle(lease.id, token, said)
        with pytest.raises(penstock.LeaseLost):
            log.extend(lease.id, token)
        with pytest.raises(penstock.LeaseLost):
            log.release(lease.id, token)
    assert lease.settle().published == 1


@pytest.mark.shows("K15")
def test_a_repeated_settle_returns_the_first_answer(log: penstock.Log, log_url: str) -> None:
    ids = append_orders(log, 5)
    log.create_group("orders", "g")
    lease = claim_lease(log)
    emit = {"emit": [{"stream": "out", "payload": {}, "type": "t"}]}
    said = {"failed": {ids[0]: "no"}, "released": [ids[4]], "effects": {ids[1]: emit}}
    first = lease.settle(**said)
    before = dump(log_url)
    assert lease.settle(**said) == first == penstock.Settled(3, 1, 0, 1)
    assert dump(log_url) == before and len(log.read("out")) == 1
    with pytest.raises(penstock.SettleMismatch):
        lease.settle()


def test_outcomes_must_belong_to_the_lease_and_not_contradict_each_other(log: penstock.Log, log_url: str) -> None:
    ids = append_orders(log, 3)
    log.create_group("orders", "g")
    lease = claim_lease(log, limit=2)
    before = dump(log_url)
    for said in (
        {"failed": {ids[2]: "not mine"}},
        {"failed": {ids[0]: "a"}, "dead": {ids[0]: "b"}},
        {"failed": {ids[0]: "a"}, "released": [ids[0]]},
        {"effects": {ids[2]: {"state": {"k": {"a": 1}}}}},
    ):
        with pytest.raises(penstock.NotInLease):
            lease.settle(**said)
    assert dump(log_url) == before
    assert lease.settle().published == 2


def test_an_event_of_another_stream_between_two_of_the_lease_is_not_in_it(log: penstock.Log, log_url: str) -> None:
    for stream in ("orders", "other", "orders"):
        log.append(stream, {}, type="t")
    log.create_group("orders", "g")
    row = claim_lease(log).row
    before = dump(log_url)
    with pytest.raises(penstock.NotInLease):
        log.settle(row.id, row.token, Settlement(failed={2: Failure("code", "not mine")}, upto=row.high))
    assert dump(log_url) == before


@pytest.mark.shows("K16")
def test_an_expired_range_comes_back_as_ranges(clocked: penstock.Log, clock: VirtualClock, log_url: str) -> None:
    log = clocked
    ids = append_orders(log, 10_000)
    log.create_group("orders", "g")
    claim_lease(log, limit=10_000)
    clock.advance(61)
    sizes = []
    again = []
    while (lease := log.claim("orders", "g", limit=10_000, claimed_by="w")) is not None:
        sizes.append(len(lease.events))
        again += [event.event_id for event in lease.events]
        assert {event.attempts for event in lease.events} == {2}
        lease.settle()
    assert again == ids and sizes == [625] * 16
    with raw(log_url) as sql:
        rows = sum(sql(f"select count(*) from penstock.{t}")[0][0] for t in ("deliveries", "attempt_log", "returned"))
        assert rows <= 100
    assert set(state_by_event(log).values()) == {"PUBLISHED"}


@pytest.mark.shows("K16", "X07")
@pytest.mark.parametrize("ordering", [None, "key"])
def test_an_event_that_kills_its_worker_ends_dead_and_no_other_does(
    clocked: penstock.Log, clock: VirtualClock, ordering: str | None
) -> None:
    """The worker dies whenever the poison is in its lease; everything else is published."""
    log = clocked
    ids = append_orders(log, 3_000)
    poison = ids[1_234]
    retry = penstock.Retry(max_attempts=3, base_seconds=1, jitter=0)
    log.create_group("orders", "g", retry=retry, ordering=ordering, lanes=1)
    deaths = 0
    solo = []
    for _ in range(500):
        lease = log.claim("orders", "g", limit=3_000, claimed_by="w")
        if lease is None:
            if all(state in ("PUBLISHED", "DEAD") for state in state_by_event(log).values()):
                break
            clock.advance(1)
        elif poison in {event.event_id for event in lease.events}:
            deaths += 1
            if len(lease.events) == 1:
                solo.append(lease.events[0].attempts)
            clock.advance(61)  # no settle: the process is gone
        else:
            lease.settle()
    found = state_by_event(log)
    assert found.pop(poison) == "DEAD" and set(found.values()) == {"PUBLISHED"}
    shown = log.delivery("orders", "g", poison)
    assert shown.failures == 3 and len(solo) == 3 and shown.attempts == deaths
    assert shown.last_error is not None and shown.last_error.startswith("lease_expired: w since ")


@pytest.mark.shows("K16")
def test_rows_of_an_expired_list_are_suspects_and_come_back_alone(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    ids = append_orders(log, 3)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=5, base_seconds=1, factor=1, jitter=0))
    claim_lease(log).settle(failed=dict.fromkeys(ids, "no"))
    clock.advance(1)
    assert len(claim_lease(log).events) == 3
    clock.advance(61)
    for expected in ids:
        lease = claim_lease(log)
        assert [event.event_id for event in lease.events] == [expected]
        assert (lease.events[0].attempts, lease.events[0].failures) == (3, 1), "a failure was counted for a suspect"
        lease.settle()


@pytest.mark.shows("K44")
@pytest.mark.parametrize("ordering", [None, "key"])
def test_rows_of_a_lost_list_come_back_in_sixteen_parts(
    clocked: penstock.Log, clock: VirtualClock, ordering: str | None
) -> None:
    log = clocked
    ids = append_orders(log, 40)
    log.create_group(
        "orders", "g", retry=penstock.Retry(base_seconds=1, factor=1, jitter=0), ordering=ordering, lanes=1
    )
    claim_lease(log).settle(failed=dict.fromkeys(ids, "no"))
    clock.advance(1)
    assert len(claim_lease(log)) == 40
    clock.advance(61)
    parts = []
    while (lease := log.claim("orders", "g", limit=100, claimed_by="w")) is not None:
        parts.append([event.event_id for event in lease.events])
        lease.settle()
    assert [one for part in parts for one in part] == ids
    assert [len(part) for part in parts] == [3] * 8 + [2] * 8


@pytest.mark.shows("K44")
def test_a_part_that_is_lost_again_is_split_again_and_a_lone_suspect_stays_alone(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    log = clocked
    ids = append_orders(log, 40)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=5, base_seconds=1, factor=1, jitter=0))
    claim_lease(log).settle(failed=dict.fromkeys(ids, "no"))
    clock.advance(1)
    poison = ids[1]
    sizes = []
    while (lease := log.claim("orders", "g", limit=100, claimed_by="w")) is not None:
        if poison in {event.event_id for event in lease.events}:
            sizes.append(len(lease))
            clock.advance(61)
        else:
            lease.settle()
    assert sizes == [40, 3, 1]
    append_orders(log, 5)
    others = claim_lease(log)
    others.settle(failed={event: "no" for event in others.events})
    clock.advance(1)
    assert sorted(len(claim_lease(log)) for _ in range(2)) == [1, 5], "a lone suspect shares a lease"


@pytest.mark.shows("K45", "K46")
def test_failures_among_released_events_get_rows_and_the_range_skips_them(clocked: penstock.Log) -> None:
    log = clocked
    ids = append_orders(log, 6)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=1, jitter=0))
    settled = claim_lease(log).settle(failed={ids[2]: "no"}, dead={ids[4]: "no"}, released=[ids[1], ids[3], ids[5]])
    assert (settled.published, settled.failed, settled.dead, settled.released) == (1, 1, 1, 3)
    again = claim_lease(log)
    assert again.is_range and [event.event_id for event in again.events] == [ids[1], ids[3], ids[5]]
    assert [event.attempts for event in again.events] == [2, 2, 2]
    states = [log.delivery("orders", "g", one).state for one in ids]
    assert states == ["PUBLISHED", "CLAIMED", "PENDING", "CLAIMED", "DEAD", "CLAIMED"]


@pytest.mark.shows("K17")
def test_a_release_returns_the_untouched_tail_as_a_range(clocked: penstock.Log, log_url: str) -> None:
    ids = append_orders(clocked, 1_000)
    clocked.create_group("orders", "g")
    lease = claim_lease(clocked, limit=1_000)
    assert lease.settle(released=ids[300:]) == penstock.Settled(300, 0, 0, 700)
    with raw(log_url) as sql:
        assert sql("select count(*) from penstock.deliveries") == [(0,)]
        assert sql("select members, reason from penstock.returned") == [(700, "released")]
    assert [state for state in state_by_event(clocked).values()] == ["PUBLISHED"] * 300 + ["PENDING"] * 700
    assert claim_and_settle_all(clocked) == ids[300:]
    assert all(one.failures == 0 for one in clocked.deliveries("orders", "g"))


@pytest.mark.shows("K31")
def test_the_happy_path_writes_nothing_per_message(log: penstock.Log, log_url: str) -> None:
    append_orders(log, 5_000)
    log.create_group("orders", "g")
    claim_and_settle_all(log, limit=500)
    with raw(log_url) as sql:
        counts = {
            name: sql(f"select count(*) from penstock.{name}")[0][0]
            for name in ("deliveries", "returned", "attempt_log", "leases")
        }
        assert counts == {"deliveries": 0, "returned": 0, "attempt_log": 0, "leases": 10}
        if sql.kind == "postgresql":
            sql("select pg_stat_force_next_flush()") if _version(sql) >= 15 else None
            rows = sql(
                "select relname, n_tup_upd + n_tup_del from pg_stat_user_tables where schemaname = 'penstock' "
                "and relname in ('events', 'deliveries', 'groups')"
            )
            assert all(changed == 0 for _, changed in rows), rows


def _version(sql: object) -> int:
    return int(sql("show server_version_num")[0][0]) // 10_000  # type: ignore[operator]


@pytest.mark.shows("K31")
def test_finding_the_open_leases_does_not_visit_the_ended_ones(log: penstock.Log, log_url: str) -> None:
    """The newest lease names the leases that were open before it, so the number of old leases does not matter."""
    append_orders(log, 60)
    log.create_group("orders", "g")
    held = claim_lease(log, limit=1)
    for _ in range(50):
        claim_lease(log, limit=1).settle()
    with raw(log_url) as sql:
        open_before = sql("select open_before from penstock.leases order by id desc limit 1")[0][0]
    assert list(open_before if isinstance(open_before, list) else eval(open_before)) == [held.id]
