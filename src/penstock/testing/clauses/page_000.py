"""Page 000: the processing lifecycle of an outbox."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from penstock.core.delivery import State
from penstock.core.lease import Settlement
from penstock.core.lifecycle import TRANSITIONS
from penstock.core.retry import Retry
from penstock.core.signals import Permanent, RetryLater
from penstock.errors import IllegalTransition, LeaseLost
from penstock.testing.clauses.bench import Bench, guarantees, refuses
from penstock.testing.clauses.registry import clause

# --- states and transitions ------------------------------------------------------------------------------------------


@clause("000-1", "a new event is PENDING")
def new_is_pending(b: Bench) -> None:
    event = b.append()
    b.group()
    assert b.of(event).state == "PENDING"


@clause("000-2", "PENDING -> CLAIMED by a claim")
def claim_moves_to_claimed(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim()
    assert b.of(event).state == "CLAIMED"


@clause("000-3", "CLAIMED -> PUBLISHED on success")
def success_moves_to_published(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    assert b.of(event).state == "PUBLISHED"


@clause("000-4", "CLAIMED -> PENDING on failure, retry or expiry")
def failure_and_expiry_move_to_pending(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=10, base_seconds=0, jitter=0))
    b.claim().settle(failed={event: "boom"})
    assert b.of(event).state == "PENDING"
    b.claim().settle(failed={event: RetryLater(0)})
    assert b.of(event).state == "PENDING"
    b.expire(b.claim())
    assert b.of(event).state == "PENDING"


@clause("000-5", "CLAIMED -> DEAD on terminal failure")
def terminal_failure_moves_to_dead(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle(dead={event: "hopeless"})
    assert b.of(event).state == "DEAD"


@clause("000-6", "PUBLISHED -> PENDING by replay")
def replay_moves_to_pending(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    assert b.log.replay(b.stream, "g", event_ids=[event], by="check").count == 1
    assert b.of(event).state == "PENDING"


@clause("000-7", "DEAD -> PENDING by replay")
def redrive_moves_to_pending(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle(dead={event: "hopeless"})
    assert b.log.redrive(b.stream, "g", event_ids=[event], by="check").count == 1
    assert b.of(event).state == "PENDING"


@clause("000-8", "there are four states only")
def four_states_only(b: Bench) -> None:
    b.published_as_row()
    b.refused("update penstock.deliveries set state = 'RETIRED' where stream = %s", b.stream)
    assert {str(state) for state in State} == {"PENDING", "CLAIMED", "PUBLISHED", "DEAD"}


@clause("000-9", "no other transition occurs")
def no_other_transition(b: Bench) -> None:
    set_fields = {
        "PENDING": "claimed_at = null, claimed_by = null, published_at = null",
        "CLAIMED": "claimed_at = updated_at, claimed_by = 'x', published_at = null",
        "PUBLISHED": "claimed_at = null, claimed_by = null, published_at = updated_at",
        "DEAD": "claimed_at = null, claimed_by = null, published_at = null",
    }
    b.group()
    b.append()
    for before in State:
        _bring_to(b, before)
        for after in State:
            if (before, after) not in TRANSITIONS:
                b.refused(
                    f"update penstock.deliveries set state = '{after}', {set_fields[after]} where stream = %s", b.stream
                )
        (found,) = b.sql("select state from penstock.deliveries where stream = %s", b.stream)
        assert found[0] == before, f"{before} was changed to {found[0]}"


def _bring_to(b: Bench, state: State) -> None:
    """Move the stream's one event along: PENDING, CLAIMED, PUBLISHED, DEAD, in this order."""
    if state is State.PENDING:
        b.fail(1)
    elif state is State.CLAIMED:
        b.claim()
    elif state is State.PUBLISHED:
        b.clock.advance(3600)
        b.log.reap()
        b.claim().settle()
    else:
        b.log.replay(b.stream, "g", all=True, by="check")
        lease = b.claim()
        lease.settle(dead={lease.events[0].event_id: "hopeless"})


# --- claiming --------------------------------------------------------------------------------------------------------


@clause("000-10", "a relay selects an eligible event")
def selects_what_is_eligible(b: Bench) -> None:
    later = b.clock.now() + timedelta(hours=1)
    b.append(available_at=later)
    event = b.append()
    b.group()
    assert [one.event_id for one in b.claim().events] == [event]


@clause("000-11", "an event is claimed before it is processed")
def claimed_before_processed(b: Bench) -> None:
    event = b.append()
    b.group()
    refuses(LeaseLost, lambda: b.log.settle(2**40, 1, Settlement()))
    assert b.of(event).state == "PENDING"
    lease = b.claim()
    assert b.of(event).state == "CLAIMED" and lease.events[0].event_id == event


@clause("000-12", "claimed_at is set to the current time")
def claimed_at_is_now(b: Bench) -> None:
    event = b.append()
    b.group()
    b.clock.advance(7)
    b.claim()
    assert b.of(event).claimed_at == b.clock.now()


@clause("000-13", "claimed_by is set to the relay's identifier")
def claimed_by_is_the_relay(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim(by="relay-7")
    assert b.of(event).claimed_by == "relay-7"


@clause("000-14", "an event that is not eligible is not claimed")
def not_eligible_not_claimed(b: Bench) -> None:
    b.append(available_at=b.clock.now() + timedelta(seconds=10))
    b.group()
    assert b.try_claim() is None
    b.clock.advance(9.999)
    assert b.try_claim() is None
    b.clock.advance(0.001)
    assert b.try_claim() is not None


@clause("000-16", "success moves the event to PUBLISHED")
def success_is_published(b: Bench) -> None:
    events = [b.append() for _ in range(3)]
    b.group()
    assert b.claim().settle().published == 3
    assert {b.of(one).state for one in events} == {State.PUBLISHED}


@clause("000-17", "published_at is set")
def published_at_is_set(b: Bench) -> None:
    event = b.append()
    b.group()
    lease = b.claim()
    b.clock.advance(3)
    lease.settle()
    assert b.of(event).published_at == b.clock.now()


# --- failure and retry -----------------------------------------------------------------------------------------------


@clause("000-18", "a retry follows a failure, an attempt that was not completed, or an expiry")
def what_leads_to_a_retry(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=10, base_seconds=0, jitter=0))
    b.claim().settle(failed={event: "boom"})
    b.claim().settle(released=[event])
    b.expire(b.claim())
    assert [one.event_id for one in b.claim().events] == [event]


@clause("000-19", "the event stays eligible")
def stays_eligible(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1)
    assert b.of(event).state == "PENDING" and b.try_claim() is not None


@clause("000-20", "attempts are incremented")
def attempts_grow(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1)
    assert b.of(event).attempts == 1
    b.fail(1)
    assert b.of(event).attempts == 2


@clause("000-21", "last_error is updated")
def last_error_follows(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1, error="first")
    assert b.of(event).last_error == "first"
    b.fail(1, error="second")
    assert b.of(event).last_error == "second"


@clause("000-22", "available_at may be updated by a retry")
def available_at_follows_the_backoff(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(base_seconds=30, jitter=0))
    b.fail(1)
    assert b.of(event).available_at == b.clock.now() + timedelta(seconds=30)


@clause("000-23", "a retry clears claimed_at")
def retry_clears_claimed_at(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1)
    assert b.of(event).claimed_at is None


@clause("000-24", "a retry clears claimed_by")
def retry_clears_claimed_by(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1)
    assert b.of(event).claimed_by is None


@clause("000-25", "an expired claim goes to another relay")
def expiry_gives_it_to_another(b: Bench) -> None:
    event = b.append()
    b.group()
    b.expire(b.claim(by="relay-1"))
    again = b.claim(by="relay-2")
    assert [one.event_id for one in again.events] == [event] and b.of(event).claimed_by == "relay-2"


# --- the end ---------------------------------------------------------------------------------------------------------


@clause("000-26", "an event is DEAD when a termination condition is met")
def dead_when_terminated(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=2, base_seconds=0, jitter=0))
    b.fail(2)
    assert b.of(event).state == "DEAD"


@clause("000-27", "a DEAD event is not retried automatically")
def dead_is_not_retried(b: Bench) -> None:
    b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    b.clock.advance(365 * 86_400)
    b.log.reap()
    assert b.try_claim() is None


@clause("000-28", "DEAD clears claimed_at")
def dead_clears_claimed_at(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    assert b.of(event).claimed_at is None


@clause("000-29", "DEAD clears claimed_by")
def dead_clears_claimed_by(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    assert b.of(event).claimed_by is None


@clause("000-30", "replay can be manual or automated")
def replay_by_hand_or_by_program(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    assert b.log.replay(b.stream, "g", event_ids=[event], dry_run=True).count == 1
    assert b.log.replay(b.stream, "g", event_ids=[event], by="an operator").count == 1
    assert b.log.replay(b.stream, "g", event_ids=[event], by="a program").count == 0
    assert b.sql("select by from penstock.audit where action = 'replay' and stream = %s order by id", b.stream)[0] == (
        "an operator",
    )


@clause("000-31", "replay brings an event back to a processable state")
def replayed_is_processable(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    b.log.replay(b.stream, "g", event_ids=[event], by="check")
    assert [one.event_id for one in b.claim().events] == [event]


@clause("000-32", "what replay resets is documented")
def reset_policy_is_documented(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=1))
    b.fail(1)
    b.log.redrive(b.stream, "g", event_ids=[event], by="check")
    assert (b.of(event).attempts, b.of(event).failures) == (0, 0)
    assert "starts a new life" in guarantees()


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
