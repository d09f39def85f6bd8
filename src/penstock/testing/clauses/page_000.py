"""Page 000: the processing lifecycle of an outbox: states, claims, retries and the end."""

from __future__ import annotations

from datetime import timedelta

from penstock.core.delivery import State
from penstock.core.lease import Settlement
from penstock.core.lifecycle import TRANSITIONS
from penstock.core.retry import Retry
from penstock.core.signals import RetryLater
from penstock.errors import LeaseLost
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
