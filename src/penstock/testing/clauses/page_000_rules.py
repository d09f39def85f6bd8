"""Page 000, continued: rules, concurrency and crashes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock.core.retry import Retry
from penstock.core.signals import Permanent
from penstock.errors import IllegalTransition, LeaseLost
from penstock.testing.clauses.bench import Bench, guarantees, refuses
from penstock.testing.clauses.registry import clause

# --- rules -----------------------------------------------------------------------------------------------------------


@clause("000-33", "only PENDING events are claimable")
def only_pending_is_claimable(b: Bench) -> None:
    b.append()
    dead = b.append()
    b.group()
    b.claim().settle(dead={dead: "hopeless"})
    b.append()
    held = b.claim()
    assert len(held) == 1 and b.try_claim(by="relay-2") is None


@clause("000-34", "many relays may operate at once")
def many_relays(b: Bench) -> None:
    for _ in range(4):
        b.append()
    b.group()
    leases = [b.claim(by=f"relay-{n}", limit=1) for n in range(4)]
    assert len({lease.events[0].event_id for lease in leases}) == 4


@clause("000-35", "an event may be claimed more than once, after a failure or an expiry")
def duplicate_claims_are_assumed(b: Bench) -> None:
    event = b.append()
    b.group()
    first = b.claim(by="relay-1")
    b.expire(first)
    second = b.claim(by="relay-2")
    assert second.events[0].event_id == event and second.token > first.token
    refuses(LeaseLost, first.settle)


@clause("000-36", "stronger coordination holds within documented constraints")
def coordination_is_documented(b: Bench) -> None:
    b.append()
    b.group()
    b.claim()
    assert b.try_claim(by="relay-2") is None
    text = guarantees()
    assert "## One holder" in text and "## Order by key" in text


@clause("000-37", "a failed attempt is retried unless a termination condition is met")
def retried_unless_terminated(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=3, base_seconds=0, jitter=0))
    for expected in ("PENDING", "PENDING", "DEAD"):
        b.fail(1)
        assert b.of(event).state == expected


@clause("000-38", "termination conditions are defined")
def termination_is_defined(b: Bench) -> None:
    policy = Retry(max_attempts=3, max_age_seconds=60)
    assert not policy.exhausted(2, age_seconds=59)
    assert policy.exhausted(3, age_seconds=0) and policy.exhausted(1, age_seconds=60)
    assert "## Attempts and budgets" in guarantees()


@clause("000-39", "a maximum number of attempts ends an event")
def maximum_attempts(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=5, base_seconds=0, jitter=0))
    b.fail(4)
    assert b.of(event).state == "PENDING"
    b.fail(1)
    assert b.of(event).state == "DEAD"


@clause("000-40", "a time limit ends an event")
def time_limit(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=100, base_seconds=0, jitter=0, max_age_seconds=60))
    b.fail(1)
    assert b.of(event).state == "PENDING"
    b.clock.advance(60)
    b.fail(1)
    assert b.of(event).state == "DEAD"


@clause("000-41", "an operator can end an event")
def operator_ends_it(b: Bench) -> None:
    event = b.append()
    b.group()
    b.log.kill(b.stream, "g", event_ids=[event], reason="not wanted", by="an operator")
    assert b.of(event).state == "DEAD" and b.try_claim() is None


@clause("000-42", "a policy of the implementation ends an event (Permanent)")
def permanent_ends_it(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=100))
    b.claim().settle(failed={event: Permanent("no such customer")})
    assert b.of(event).state == "DEAD" and b.of(event).failures == 1


@clause("000-43", "terminal states do not change by themselves")
def terminal_states_stay(b: Bench) -> None:
    done, dead = b.append(), b.append()
    b.group()
    b.claim().settle(dead={dead: "hopeless"})
    b.clock.advance(365 * 86_400)
    b.log.reap()
    assert (b.of(done).state, b.of(dead).state) == ("PUBLISHED", "DEAD")


@clause("000-44", "only replay processes a terminal event again")
def only_replay_goes_on(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    refuses(IllegalTransition, lambda: b.log.kill(b.stream, "g", event_ids=[event], by="check"))
    refuses(
        IllegalTransition,
        lambda: b.log.reschedule(b.stream, "g", event_ids=[event], available_at=b.clock.now(), by="check"),
    )
    assert b.try_claim() is None
    b.log.replay(b.stream, "g", event_ids=[event], by="check")
    assert b.try_claim() is not None


# --- concurrency -----------------------------------------------------------------------------------------------------


@clause("000-45", "relays process events concurrently")
def concurrent_relays(b: Bench) -> None:
    events = {b.append() for _ in range(20)}
    b.group()

    def relay(number: int) -> list[object]:
        seen: list[object] = []
        while (lease := b.try_claim(by=f"relay-{number}", limit=2)) is not None:
            seen += [one.event_id for one in lease.events]
            lease.settle()
        return seen

    with ThreadPoolExecutor(4) as relays:
        handled = [one for seen in relays.map(relay, range(4)) for one in seen]
    assert len(handled) == 20 and set(handled) == events


@clause("000-46", "duplicate processing may occur, and is recognisable")
def duplicates_are_recognisable(b: Bench) -> None:
    event = b.append({"n": 7})
    b.group()
    first = b.claim()
    seen = [(first.events[0].event_id, bytes(first.events[0].payload))]
    b.expire(first)
    again = b.claim()
    seen.append((again.events[0].event_id, bytes(again.events[0].payload)))
    assert seen[0] == seen[1] and seen[0][0] == event and again.events[0].attempts == 2


@clause("000-47", "a claim is verified before its outcome is final")
def claim_is_verified(b: Bench) -> None:
    event = b.append()
    b.group()
    stale = b.claim(by="relay-1")
    b.expire(stale)
    b.claim(by="relay-1")
    refuses(LeaseLost, stale.settle)
    assert b.of(event).state == "CLAIMED"


@clause("000-48", "claim conflicts may occur, and one relay wins")
def one_relay_wins(b: Bench) -> None:
    b.append()
    b.group()
    with ThreadPoolExecutor(4) as relays:
        won = [lease for lease in relays.map(lambda n: b.try_claim(by=f"relay-{n}"), range(4)) if lease is not None]
    assert len(won) == 1


@clause("000-49", "ordering restricts concurrency within a key")
def ordering_restricts(b: Bench) -> None:
    first = b.append(ordering_key="k")
    b.append(ordering_key="k")
    b.group(ordering="key")
    held = b.claim(limit=1)
    assert held.events[0].event_id == first and b.try_claim(by="relay-2") is None


@clause("000-50", "the system is correct under concurrent execution")
def correct_under_concurrency(b: Bench) -> None:
    for _ in range(12):
        b.append()
    b.group(retry=Retry(max_attempts=2, base_seconds=0, jitter=0))

    def relay(number: int) -> None:
        while (lease := b.try_claim(by=f"relay-{number}", limit=3)) is not None:
            lease.settle(failed={event.event_id: "boom" for event in lease.events if event.offset % 2})

    with ThreadPoolExecutor(3) as relays:
        list(relays.map(relay, range(3)))
    found = b.log.deliveries(b.stream, "g")
    assert len(found) == 12
    assert all(one.state == ("DEAD" if one.offset % 2 else "PUBLISHED") for one in found)


# --- crashes ---------------------------------------------------------------------------------------------------------


@clause("000-51", "a relay crashes after claiming: the event is claimed again")
def crash_after_claim(b: Bench) -> None:
    event = b.append()
    b.group()
    b.expire(b.claim(by="relay-1"))
    b.claim(by="relay-2").settle()
    assert b.of(event).state == "PUBLISHED"


@clause("000-52", "a relay crashes after publishing: the same event with the same bytes is published again")
def crash_after_publish(b: Bench) -> None:
    event = b.append({"amount": 12.5})
    b.group()
    target: list[tuple[object, bytes]] = []
    first = b.claim(by="relay-1")
    target.append((first.events[0].event_id, bytes(first.events[0].payload)))
    b.expire(first)
    second = b.claim(by="relay-2")
    target.append((second.events[0].event_id, bytes(second.events[0].payload)))
    second.settle()
    assert target[0] == target[1] and b.of(event).state == "PUBLISHED"


@clause("000-53", "duplicate claims by timing or failure leave one outcome")
def duplicate_claims_leave_one_outcome(b: Bench) -> None:
    event = b.append()
    b.group()
    stale = b.claim(by="relay-1")
    b.expire(stale)
    fresh = b.claim(by="relay-2")
    fresh.settle()
    refuses(LeaseLost, lambda: stale.settle(dead={event: "late"}))
    assert b.of(event).state == "PUBLISHED"


@clause("000-54", "a partial failure concerns what failed")
def partial_failure(b: Bench) -> None:
    good, bad = b.append(), b.append()
    b.group()
    b.claim().settle(failed={bad: "boom"})
    assert (b.of(good).state, b.of(bad).state) == ("PUBLISHED", "PENDING")


@clause("000-55", "delivery semantics are kept in every case")
def at_least_once_in_every_case(b: Bench) -> None:
    events = {b.append() for _ in range(6)}
    b.group(retry=Retry(max_attempts=50, base_seconds=0, jitter=0))
    handled: set[object] = set()
    b.expire(b.claim(limit=3))
    b.claim(limit=2).release()
    b.fail(1)
    while (lease := b.try_claim(limit=2)) is not None:
        handled |= {one.event_id for one in lease.events}
        lease.settle()
    assert handled == events


@clause("000-56", "no event is lost once it is stored")
def nothing_is_lost(b: Bench) -> None:
    events = {b.append() for _ in range(10)}
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    assert {one.event_id for one in b.log.deliveries(b.stream, "g", state="DEAD")} == events
    assert {one.event_id for one in b.log.read(b.stream)} == events
