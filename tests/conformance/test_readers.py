"""Claims of streaming readers: a number always means the same leases, and a lost claim is an error."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.core import limits
from penstock.core.lease import Idle
from penstock.log.reader_claims import ReaderClaims
from penstock.testing import CrashPoint, StatementCounter, VirtualClock
from tests.support.forks import killed_in_child
from tests.support.log_steps import append_orders, claim_and_settle_all, state_by_event
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw
from tests.support.roles import worker_role

DAY = 86_400


def claims_of(log: penstock.Log, group: str = "g") -> ReaderClaims:
    return ReaderClaims(log.store, "orders", group)


def take(claims: ReaderClaims, reader: str = "r", after: int = 0, limit: int = 1_000) -> int:
    found = claims.next(reader, after=after, limit=limit, upto=None)
    assert isinstance(found, int)
    return found


def contents(log: penstock.Log, number: int, reader: str = "r", group: str = "g") -> list[Any]:
    """The ids of a claim, as tasks read them."""
    held = claims_of(log, group).hold(reader, number)
    return sorted(
        str(event.event_id) for row in held for event in penstock.Lease(log, row, log.store.read_lease(row)).events
    )


@pytest.mark.shows("S07")
def test_repeating_a_claim_returns_the_same_claim(log: penstock.Log, make_log: MakeLog) -> None:
    ids = append_orders(log, 10)
    log.create_group("orders", "g")
    number = take(claims_of(log), limit=6)
    first = contents(log, number)
    assert len(first) == 6
    second = make_log()  # as after a crash between the claim and Spark's offset log
    assert take(claims_of(second), limit=6) == number and contents(second, number) == first
    assert contents(second, take(claims_of(second), reader="other"), reader="other") == sorted(map(str, ids[6:]))
    assert isinstance(claims_of(log).next("third", after=0, limit=10, upto=None), Idle)


@pytest.mark.shows("S07")
def test_a_committed_claim_is_settled_once_and_reads_the_same_afterwards(log: penstock.Log) -> None:
    append_orders(log, 10)
    log.create_group("orders", "g")
    claims = claims_of(log)
    first = take(claims, limit=4)
    before = contents(log, first)
    assert claims.settle_upto("r", first) == [] and claims.settle_upto("r", first) == []
    second = take(claims, after=first, limit=4)
    assert second == first + 1 and contents(log, first) == before
    assert list(state_by_event(log).values()).count("PUBLISHED") == 4
    claims.settle_upto("r", second)
    assert list(state_by_event(log).values()).count("PUBLISHED") == 8
    assert take(claims, after=0) == first, "an older checkpoint must read the same batches again"
    assert take(claims, after=first) == second
    third = take(claims, after=second)
    assert third == second + 1 and len(contents(log, third)) == 2


@pytest.mark.shows("S07")
def test_a_claim_of_rows_and_ranges_together_stays_within_its_limit(log: penstock.Log) -> None:
    ids = append_orders(log, 30)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    lease = log.claim("orders", "g", limit=10, claimed_by="w")
    assert lease is not None
    lease.settle(failed={one: "no" for one in ids[:3]}, released=ids[8:10])
    claims = claims_of(log)
    seen: list[Any] = []
    number = 0
    while isinstance(found := claims.next("r", after=number, limit=8, upto=None), int):
        number = found
        part = contents(log, number)
        assert 0 < len(part) <= 8
        seen += part
        claims.settle_upto("r", number)
    assert sorted(seen) == sorted(map(str, [*ids[:3], *ids[8:]])) and number < 5
    assert set(state_by_event(log).values()) == {"PUBLISHED"}


@pytest.mark.shows("S07")
def test_a_claim_is_held_for_days(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_orders(clocked, 4)
    clocked.create_group("orders", "g", lease_seconds=5)
    claims = claims_of(clocked)
    number = take(claims)
    before = contents(clocked, number)  # reading the contents extends the lease
    clock.advance(6 * DAY)
    assert clocked.reap() == 0 and clocked.claim("orders", "g", claimed_by="w") is None
    assert contents(clocked, number) == before
    clock.advance(6 * DAY)
    assert claims.settle_upto("r", number) == [] and set(state_by_event(clocked).values()) == {"PUBLISHED"}


@pytest.mark.shows("S07")
def test_a_later_claim_is_held_for_days_before_anybody_reads_it(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_orders(clocked, 4)
    clocked.create_group("orders", "g", lease_seconds=5)
    claims = claims_of(clocked)
    first = take(claims, limit=2)
    claims.settle_upto("r", first)
    second = take(claims, after=first)
    clock.advance(6 * DAY)  # the driver was down between the claim and Spark's offset log
    assert clocked.reap() == 0 and take(claims, after=first) == second and len(contents(clocked, second)) == 2


@pytest.mark.shows("S07")
def test_an_incomplete_claim_is_released_before_it_is_handed_out(log: penstock.Log) -> None:
    ids = append_orders(log, 6)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    lease.settle(failed={one: "no" for one in ids[:2]})
    claims = claims_of(log)
    number = take(claims)
    one, other = claims.hold("r", number)
    log.release(one.id, one.token)
    following = take(claims)
    assert following == number + 1 and contents(log, following) == sorted(map(str, ids))
    with pytest.raises(penstock.ClaimLost):
        claims.check_held({other.id: other.token})


@pytest.mark.shows("S07")
def test_a_first_claim_that_was_never_recorded_expires_soon(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_orders(clocked, 4)
    clocked.create_group("orders", "g")
    claims = claims_of(clocked)
    take(claims, reader="died")
    clock.advance(limits.READER_FIRST_SECONDS + 1)
    number = take(claims, reader="fresh")
    assert len(contents(clocked, number, reader="fresh")) == 4
    # If the first driver only slept, it gets another number: the first was never given to Spark.
    append_orders(clocked, 2)
    assert take(claims, reader="died") == 2


@pytest.mark.shows("S07")
@pytest.mark.parametrize("how", ["released", "expired", "rewound"])
def test_a_lost_claim_is_an_error_and_not_an_empty_batch(clocked: penstock.Log, clock: VirtualClock, how: str) -> None:
    ids = append_orders(clocked, 6)
    clocked.create_group("orders", "g")
    claims = claims_of(clocked)
    number = take(claims, limit=4)
    (row,) = claims.hold("r", number)
    claims.check_held({row.id: row.token})
    if how == "released":
        assert clocked.release_reader("orders", "g", "reader:r", dry_run=True).count == 4
        assert [one.events for one in clocked.readers("orders", "g")] == [4]
        assert clocked.release_reader("orders", "g", "r").count == 4 and clocked.readers("orders", "g") == []
        assert clocked.release_reader("orders", "g", "r").count == 0
    elif how == "expired":
        clock.advance(8 * DAY)
    else:
        clocked.rewind("orders", "g", to="beginning")
    with pytest.raises(penstock.ClaimLost):
        claims.check_held({row.id: row.token})
    with pytest.raises(penstock.ClaimLost, match="claim_lost"):
        claims.hold("r", number)
    assert claims.hold("r", number, skip_lost=True) == []
    assert claims.settle_upto("r", number) == [number], "committed, but its events come again"
    after = take(claims, after=number, limit=4)
    seen = {*contents(clocked, after)}
    claims.settle_upto("r", after)
    assert seen and seen <= {str(one) for one in ids}
    assert {str(one) for one in claim_and_settle_all(clocked)} | seen == {str(one) for one in ids}


@pytest.mark.shows("S07")
def test_a_settled_claim_whose_events_were_removed_cannot_be_read_again(log: penstock.Log) -> None:
    ids = append_orders(log, 4)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    claims = claims_of(log)
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    lease.settle(failed={ids[0]: "no"})
    number = 0
    while isinstance(found := claims.next("r", after=number, limit=1, upto=None), int):
        number = found
        claims.settle_upto("r", number)
    assert number == 3
    log.prune("orders", upto=log.end())
    for one in range(1, number + 1):
        with pytest.raises(penstock.ClaimLost, match="removed"):
            claims.hold("r", one)


def test_ordered_groups_unknown_readers_and_unknown_groups_are_refused(log: penstock.Log) -> None:
    append_orders(log, 4)
    log.create_group("orders", "g")
    log.create_group("orders", "other")
    log.create_group("orders", "ordered", ordering="key")
    claims = claims_of(log)
    number = take(claims)
    with pytest.raises(penstock.OrderedGroup):
        take(claims_of(log, "ordered"))
    with pytest.raises(penstock.UnknownReader, match="claim 1"):
        claims_of(log, "other").settle_upto("r", number)
    with pytest.raises(penstock.UnknownReader):
        claims.settle_upto("r", 7)
    with pytest.raises(penstock.UnknownReader):
        claims.hold("nobody", 1)
    with pytest.raises(penstock.UnknownReader, match="nobody"):
        log.release_reader("orders", "g", "nobody")
    with pytest.raises(penstock.UnknownReader):
        log.release_reader("orders", "other", "r")
    with pytest.raises(penstock.UnknownGroup):
        log.release_reader("orders", "missing", "r")
    with pytest.raises(penstock.InFlight):
        log.delete_group("orders", "g")
    log.release_reader("orders", "g", "r", by="ops")
    log.delete_group("orders", "g")
    log.create_group("orders", "g")
    with pytest.raises(penstock.UnknownReader):
        claims.settle_upto("r", number)


def test_a_claim_stops_at_its_upper_bound_and_a_paused_group_gives_none(log: penstock.Log) -> None:
    append_orders(log, 4)
    end = log.end()
    append_orders(log, 4)
    log.create_group("orders", "g")
    claims = claims_of(log)
    log.pause("orders", "g")
    paused = claims.next("r", after=0, limit=100, upto=end)
    assert isinstance(paused, Idle) and paused.paused
    log.resume("orders", "g")
    number = claims.next("r", after=0, limit=100, upto=end)
    assert number == 1 and len(contents(log, 1)) == 4
    assert isinstance(claims.next("r", after=1, limit=100, upto=end), Idle)


def test_a_claim_skips_events_that_do_not_match_in_one_call(log: penstock.Log) -> None:
    append_orders(log, 3 * limits.PASS_STRETCH)
    log.append("orders", {}, type="rare")
    log.create_group("orders", "g", types=["rare"])
    assert len(contents(log, take(claims_of(log)))) == 1


@pytest.mark.shows("S07", "X02")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("verb", ["claim", "settle", "release"])
def test_a_claim_killed_at_any_statement_is_complete_or_absent(
    make_log: MakeLog, clock: VirtualClock, log_url: str, verb: str
) -> None:
    def act(log: penstock.Log, group: str) -> None:
        if verb == "claim":
            claims_of(log, group).next(group, after=0, limit=100, upto=None)
        elif verb == "settle":
            claims_of(log, group).settle_upto(group, 1)
        else:
            log.release_reader("orders", group, group)

    def prepare(log: penstock.Log, group: str) -> None:
        log.create_group("orders", group, retry=penstock.Retry(base_seconds=0, jitter=0))
        lease = log.claim("orders", group, limit=4, claimed_by="w")
        assert lease is not None
        lease.settle(failed={event.event_id: "no" for event in lease.events})
        if verb != "claim":
            claims_of(log, group).next(group, after=0, limit=100, upto=None)

    def open_leases() -> int:
        with raw(log_url) as sql:
            return int(sql("select count(*) from penstock.leases where outcome is null")[0][0])

    counter = StatementCounter()
    with penstock.open(log_url, clock=clock, hook=counter) as log:
        append_orders(log, 12)
        prepare(log, "count")
        counter.reset()
        act(log, "count")
        steps = list(counter.blocks)
        if verb != "release":
            claims_of(log, "count").settle_upto("count", 1)
    assert open_leases() == 0 and steps.count("commit") == 1
    for step in range(1, len(steps) + 1):
        group = f"{verb}-{step}"
        with penstock.open(log_url, clock=clock) as log:
            prepare(log, group)
        _assert_killed(log_url, clock, CrashPoint("before", step), lambda log, group=group: act(log, group))  # type: ignore[misc]
        assert open_leases() in ((0, 2) if verb != "claim" else (0,)), "a partial claim"
        with penstock.open(log_url, clock=clock) as log:
            number = take(claims_of(log, group), reader=group)
            seen = contents(log, number, reader=group, group=group)
            assert len(seen) == 12
            claims_of(log, group).settle_upto(group, number)
            assert log.drained("orders", group)


def _assert_killed(url: str, clock: VirtualClock, point: CrashPoint, act: Any) -> None:
    def work() -> None:
        log = penstock.open(url, clock=clock, hook=point)
        point.arm()
        act(log)

    assert killed_in_child(work), "the child was not killed"


@pytest.mark.shows("S07", "X10")
def test_the_worker_role_suffices(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with worker_role(postgres_log_url) as (url, _), penstock.open(url) as log:
        append_orders(log, 4)
        log.create_group("orders", "g")
        claims = claims_of(log)
        number = take(claims, limit=2)
        assert len(contents(log, number)) == 2
        claims.fail("r", number, {1: "no"})
        claims.settle_upto("r", number)
        take(claims, after=number)
        assert log.release_reader("orders", "g", "r").count == 2


@pytest.mark.shows("S25")
def test_failed_events_of_a_claim_are_settled_by_themselves(log: penstock.Log) -> None:
    ids = append_orders(log, 8)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    lease.settle(failed={ids[0]: "no"})  # the claim has a list lease and a range
    claims = claims_of(log)
    number = take(claims)
    by_id = {event.event_id: event.offset for event in log.read("orders")}
    first, second, third = (by_id[ids[place]] for place in (0, 4, 5))
    claims.fail("r", number, {first: "for nothing", third: "for nothing"})
    claims.fail("r", number, {first: "still no", second: penstock.Permanent("never")})  # the batch ran again
    assert claims.settle_upto("r", number) == [] and claims.settle_upto("r", number) == []
    assert list(state_by_event(log).values()).count("PUBLISHED") == 6
    retried, dead = (log.delivery("orders", "g", ids[place]) for place in (0, 4))
    assert (retried.state, retried.last_error, retried.failures) == ("PENDING", "still no", 2)
    assert (dead.state, dead.last_error, dead.error_code) == ("DEAD", "never", "Permanent")
    again = take(claims, after=number)
    assert contents(log, again) == [str(ids[0])]
    with pytest.raises(penstock.NotInLease, match=f"offset {third}"):
        claims.fail("r", again, {third: "not there"})
    with pytest.raises(penstock.InvalidInput, match="by the offset"):
        claims.fail("r", again, {str(ids[0]): "no"})  # type: ignore[dict-item]
