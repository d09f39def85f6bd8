"""Order by key: per key, first successes follow append order, whatever fails, dies, waits or is redriven."""

from __future__ import annotations

import random
import threading
from datetime import timedelta

import pytest

import penstock
from penstock.core.lease import Failure, Settlement
from penstock.core.limits import ROWS_LEAST
from penstock.testing import History, VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all, claim_lease
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


def key_log(log: penstock.Log, *keys: str | None, **group: object) -> list[object]:
    """Append one event per given key, in order, and create an ordered group with one lane."""
    options: dict[str, object] = {
        "ordering": "key",
        "lanes": 1,
        "retry": penstock.Retry(base_seconds=10, jitter=0),
        **group,
    }
    log.create_group("orders", "g", **options)  # type: ignore[arg-type]
    return [log.append("orders", {}, type="t", ordering_key=key).event_id for key in keys]


@pytest.mark.shows("K18")
def test_a_failing_head_delays_its_key_and_no_other(clocked: penstock.Log, clock: VirtualClock) -> None:
    a1, b1, a2, none, a3 = key_log(clocked, "a", "b", "a", None, "a")
    answer = claim_lease(clocked).settle(failed={a1: "no"})  # a2 and a3 are released, whatever the caller says
    assert answer == penstock.Settled(2, 1, 0, 2)
    assert clocked.delivery("orders", "g", a2).reason == "blocked"
    later = clocked.append("orders", {}, type="t", ordering_key="a").event_id
    other = clocked.append("orders", {}, type="t", ordering_key="b").event_id
    assert claim_and_settle_all(clocked) == [other] and clocked.delivery("orders", "g", later).reason == "blocked"
    clock.advance(10)
    assert claim_and_settle_all(clocked) == [a1, a2, a3, later]
    assert {one.state for one in clocked.deliveries("orders", "g")} == {"PUBLISHED"} and none and b1


@pytest.mark.shows("K18", "K36")
def test_rows_of_a_key_that_fails_come_back_in_small_leases(clocked: penstock.Log) -> None:
    """The head is tried alone; later events come in leases that grow with every success."""
    key_log(clocked, *["a"] * 400, retry=penstock.Retry(max_attempts=5, base_seconds=0, jitter=0))
    claim_lease(clocked, 400).settle(failed={clocked.read("orders", limit=1)[0].event_id: "no"})
    sizes = []
    for outcome in ("no", None, None, None):
        lease = claim_lease(clocked, 400)
        sizes.append(len(lease))
        lease.settle(failed={lease.events[0]: outcome} if outcome else None)
    assert sizes == [1, 1, ROWS_LEAST, 4 * ROWS_LEAST]


@pytest.mark.shows("K18", "K45")
@pytest.mark.parametrize("on_dead", ["continue", "halt"])
def test_a_settle_holds_back_the_same_events_with_and_without_given_keys(clocked: penstock.Log, on_dead: str) -> None:
    """A lease with loaded events passes the keys of those that did not succeed; otherwise the store looks them up.

    Random outcomes, in two groups that are otherwise equal."""
    rng = random.Random(18)
    for _ in range(30):
        clocked.append("orders", {}, type="t", ordering_key=rng.choice(["a", "b", "c", None]))
    for n in range(12):
        told, asked = (f"{kind}-{n}" for kind in ("told", "asked"))
        for group in (told, asked):
            clocked.create_group("orders", group, ordering="key", lanes=1, on_dead=on_dead)
        leases = [clocked.claim("orders", group, limit=30, claimed_by="w") for group in (told, asked)]
        assert leases[0] is not None and leases[1] is not None
        offsets = [event.offset for event in leases[0].events]
        failed, dead, back = rng.sample(offsets, 3), rng.sample(offsets, 2), set(rng.sample(offsets, 4))
        no, upto = Failure("no", "no"), rng.choice(offsets[20:])
        said = Settlement(
            failed={one: no for one in failed},
            dead={one: no for one in dead if one not in failed},
            released=frozenset(one for one in back - {*failed, *dead} if one <= upto),
            upto=upto,
        )
        answers = [leases[0].apply(said), clocked.settle(leases[1].id, leases[1].token, said)]
        assert answers[0] == answers[1] and answers[0].released >= len(said.released)
        shown = [
            {one.offset: (one.state, one.reason, one.failures) for one in clocked.deliveries("orders", group, limit=99)}
            for group in (told, asked)
        ]
        assert shown[0] == shown[1] and len(shown[0]) == 30


@pytest.mark.shows("K18")
def test_a_dead_head_does_not_block_its_key_by_default(clocked: penstock.Log) -> None:
    a1, a2 = key_log(clocked, "a", "a")
    assert claim_lease(clocked).settle(dead={a1: "never"}) == penstock.Settled(1, 0, 1, 0)
    assert clocked.delivery("orders", "g", a2).state == "PUBLISHED"


@pytest.mark.shows("K18")
def test_a_dead_head_halts_its_key_by_policy_until_skip_or_redrive(clocked: penstock.Log) -> None:
    a1, a2, b1 = key_log(clocked, "a", "a", "b", on_dead="halt")
    assert claim_lease(clocked).settle(dead={a1: "never"}) == penstock.Settled(1, 0, 1, 1)
    a3 = clocked.append("orders", {}, type="t", ordering_key="a").event_id
    assert claim_and_settle_all(clocked) == [] and clocked.delivery("orders", "g", a3).reason == "blocked"
    clocked.redrive("orders", "g", event_ids=[a1])
    lease = claim_lease(clocked)
    assert [event.event_id for event in lease.events] == [a1, a2, a3]
    lease.settle(dead={a1: "still"})
    assert claim_and_settle_all(clocked) == []
    assert clocked.skip("orders", "g", "a").count == 1
    assert claim_and_settle_all(clocked) == [a2, a3]
    assert clocked.delivery("orders", "g", a1).state == "DEAD" and b1


@pytest.mark.shows("K18")
def test_a_delayed_head_holds_its_key_back(clocked: penstock.Log, clock: VirtualClock) -> None:
    key_log(clocked)
    due = clock.now() + timedelta(seconds=30)
    head = clocked.append("orders", {}, type="t", ordering_key="a", available_at=due).event_id
    follower, other = (clocked.append("orders", {}, type="t", ordering_key=key).event_id for key in "ab")
    assert claim_and_settle_all(clocked) == [other]
    clock.advance(30)
    assert claim_and_settle_all(clocked) == [head, follower]


@pytest.mark.shows("K18")
@pytest.mark.parametrize("how", ["redrive", "replay"])
def test_a_redriven_or_replayed_head_holds_back_what_is_not_yet_taken(clocked: penstock.Log, how: str) -> None:
    a1, b1 = key_log(clocked, "a", "b")
    claim_lease(clocked).settle(dead={a1: "never"} if how == "redrive" else {})
    a2 = clocked.append("orders", {}, type="t", ordering_key="a").event_id
    b2 = clocked.append("orders", {}, type="t", ordering_key="b").event_id
    assert getattr(clocked, how)("orders", "g", event_ids=[a1]).count == 1
    seen = []
    while (lease := clocked.claim("orders", "g", limit=1, claimed_by="w")) is not None:
        seen += [event.event_id for event in lease.events]
        lease.settle()
    assert seen.index(a1) < seen.index(a2) and sorted(map(str, seen)) == sorted(map(str, [a1, a2, b2])) and b1


@pytest.mark.shows("K18")
def test_a_key_is_in_one_lease_at_a_time(log: penstock.Log) -> None:
    log.create_group("orders", "g", ordering="key", lanes=8)
    for n in range(400):
        log.append("orders", {}, type="t", ordering_key=f"k{n % 40}")
    held = []
    while (lease := log.claim("orders", "g", limit=10, claimed_by=f"w{len(held)}")) is not None:
        held.append({event.ordering_key for event in lease.events})
    assert len(held) == 8, "a lane has at most one open lease"
    assert sum(map(len, held)) == len(set().union(*held)), "two leases share a key"


@pytest.mark.shows("K18", "X07")
@pytest.mark.timeout(240)
def test_order_holds_with_many_workers_failures_and_crashes(make_log: MakeLog, log_url: str) -> None:
    """Many workers: some settle late, some never (their leases expire), some fail or release."""
    log = make_log()
    retry = penstock.Retry(max_attempts=50, base_seconds=0.01, factor=1, jitter=0)
    log.create_group("orders", "g", ordering="key", lanes=4, retry=retry, lease_seconds=0.6)
    history = History(ordered=True)
    chance = random.Random(7)
    for n in range(600):
        key = f"k{chance.randrange(25)}"
        answer = log.append("orders", {"n": n}, type="t", ordering_key=key)
        history.append(answer.event_id, answer.offset, key)
    finished = threading.Event()
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        own = make_log()
        try:
            while not finished.is_set():
                lease = own.claim("orders", "g", limit=dice.choice([1, 5, 40]), claimed_by=f"w{seed}")
                if lease is None:
                    if all(one.state == "PUBLISHED" for one in own.deliveries("orders", "g", limit=10_000)):
                        finished.set()
                    continue
                handle(own, lease, dice)
        except BaseException as error:
            problems.append(error)
            finished.set()

    def handle(own: penstock.Log, lease: penstock.Lease, dice: random.Random) -> None:
        events = lease.events
        if dice.random() < 0.05:
            return  # this worker died
        failed = {event.event_id: "no" for event in events if dice.random() < 0.1}
        cut = dice.randrange(len(events) + 1) if dice.random() < 0.2 else len(events)
        released = [event.event_id for event in events[cut:] if event.event_id not in failed]
        effects = {
            event.event_id: {"execute": [("insert into done (event_id) values (?)", [str(event.event_id)])]}
            for event in events[:cut]
            if event.event_id not in failed
        }
        try:
            lease.settle(failed=failed, released=released, effects=effects)
        except penstock.LeaseLost:
            return

    with raw(log_url) as sql:
        kind = "bigserial" if sql.kind == "postgresql" else "integer"
        sql(f"create table done (n {kind} primary key, event_id text not null)")
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    with raw(log_url) as sql:
        done = [row[0] for row in sql("select event_id from done order by n")]
    by_text = {str(event_id): event_id for event_id in history.appended}
    for text in done:
        history.effect(by_text[text])
    history.succeed(by_text[text] for text in done)
    history.end({one.event_id: one.state for one in log.deliveries("orders", "g", limit=10_000)})
    assert history.check() == []
    assert len(done) == 600


@pytest.mark.shows("K18")
def test_a_lane_full_of_blocked_rows_stops_its_cursor(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.core import limits

    monkeypatch.setattr(limits, "BLOCKED_PER_LANE", 5)
    head, *rest = key_log(clocked, *["a"] * 7)
    claim_lease(clocked, limit=7).settle(failed={head: "no"})
    more = append_orders(clocked, 3, ordering_key="b")
    assert claim_and_settle_all(clocked) == [], "six rows are blocked: the lane waits"
    clock.advance(10)
    assert claim_and_settle_all(clocked) == [head, *rest, *more]


@pytest.mark.shows("K18")
def test_lanes_can_be_doubled_and_nothing_is_lost(log: penstock.Log) -> None:
    log.create_group("orders", "g", ordering="key", lanes=2)
    ids = [log.append("orders", {}, type="t", ordering_key=f"k{n}").event_id for n in range(50)]
    first = log.claim("orders", "g", limit=10, claimed_by="w")
    assert first is not None
    with pytest.raises(penstock.InFlight):
        log.double_lanes("orders", "g")
    done = [event.event_id for event in first.events[:4]]
    first.settle(released=[event.event_id for event in first.events[4:]])
    assert log.double_lanes("orders", "g") == 4
    assert sorted(map(str, done + claim_and_settle_all(log, limit=7))) == sorted(map(str, ids))
    (stats,) = log.stats().groups
    assert (stats.published, stats.pending, stats.lag) == (50, 0, 0)
