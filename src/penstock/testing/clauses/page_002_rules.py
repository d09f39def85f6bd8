"""Page 002, continued: outcomes, what may change, invariants and delivery semantics."""

from __future__ import annotations

import uuid

from penstock.core.retry import Retry
from penstock.errors import LeaseLost
from penstock.testing.clauses.bench import Bench, guarantees, immutable, refuses
from penstock.testing.clauses.registry import clause

_REQUIRED = ("event_id", "event_type", "payload", "state", "created_at")


# --- claims and outcomes ---------------------------------------------------------------------------------------------


@clause("002-38", "claimed_at is set by a claim")
def claimed_at_is_set(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim()
    assert b.of(event).claimed_at == b.clock.now()


@clause("002-39", "claimed_at tells what is stuck")
def stuck_is_visible(b: Bench) -> None:
    b.append()
    b.group()
    b.claim(by="stuck")
    found = b.sql(
        "select claimed_by from penstock.delivery where stream = %s and state = 'CLAIMED' and claimed_at is not null",
        b.stream,
    )
    assert found == [("stuck",)]


@clause("002-40", "claimed_at is cleared when the claim ends")
def claimed_at_is_cleared(b: Bench) -> None:
    good, bad = b.append(), b.append()
    b.group()
    b.claim().settle(failed={bad: "boom"})
    assert b.of(good).claimed_at is None and b.of(bad).claimed_at is None


@clause("002-41", "claimed_by is set by a claim")
def claimed_by_is_set(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim(by="relay-9")
    assert b.of(event).claimed_by == "relay-9"


@clause("002-42", "claims are fenced")
def claims_are_fenced(b: Bench) -> None:
    event = b.append()
    b.group()
    stale = b.claim(by="same name")
    b.expire(stale)
    fresh = b.claim(by="same name")
    for late in (stale.settle, stale.extend, stale.release):
        refuses(LeaseLost, late)
    assert b.of(event).state == "CLAIMED" and fresh.token > stale.token


@clause("002-43", "published_at is set on success")
def published_at_is_set(b: Bench) -> None:
    event = b.append()
    b.group()
    b.claim().settle()
    assert b.of(event).published_at == b.clock.now()


@clause("002-44", "published_at is not modified afterwards")
def published_at_stays(b: Bench) -> None:
    event = b.published_as_row()
    before = b.of(event).published_at
    b.refused("update penstock.deliveries set published_at = available_at where stream = %s", b.stream)
    b.clock.advance(60)
    b.log.reap()
    assert b.of(event).published_at == before


# --- mutability ------------------------------------------------------------------------------------------------------


@clause("002-45", "immutable: event_id")
def immutable_event_id(b: Bench) -> None:
    immutable(b, "event_id", str(uuid.uuid4()))


@clause("002-46", "immutable: event_type")
def immutable_event_type(b: Bench) -> None:
    immutable(b, "event_type", "other")


@clause("002-47", "immutable: ordering_key")
def immutable_ordering_key(b: Bench) -> None:
    immutable(b, "ordering_key", "other")


@clause("002-48", "immutable: partition_key")
def immutable_partition_key(b: Bench) -> None:
    immutable(b, "partition_key", "other")


@clause("002-49", "immutable: payload")
def immutable_payload(b: Bench) -> None:
    immutable(b, "payload", b"other")


@clause("002-50", "immutable: headers")
def immutable_headers(b: Bench) -> None:
    immutable(b, "headers", '{"tenant": "us"}')


@clause("002-51", "immutable: created_at")
def immutable_created_at(b: Bench) -> None:
    b.append()
    b.refused("update penstock.events set created_at = null where stream = %s", b.stream)


@clause("002-52", "the mutable fields change as an event is processed")
def mutable_fields(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(base_seconds=1, jitter=0))
    seen = [b.of(event)]
    lease = b.claim()
    seen.append(b.of(event))
    lease.settle(failed={event: "boom"})
    seen.append(b.of(event))
    b.clock.advance(1)
    b.claim().settle()
    seen.append(b.of(event))
    names = ("state", "attempts", "claimed_by", "available_at", "claimed_at", "published_at", "last_error")
    assert all(len({getattr(one, name) for one in seen}) > 1 for name in names)


# --- invariants ------------------------------------------------------------------------------------------------------


@clause("002-53", "transitions follow the lifecycle")
def transitions_follow(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1)
    b.refused(
        "update penstock.deliveries set state = 'PUBLISHED', published_at = updated_at where stream = %s", b.stream
    )
    assert b.of(event).state == "PENDING"


def _invariant(b: Bench, column: str, state: str) -> None:
    """Check that the column is set in this state and in no other, and that the database enforces it."""
    dead, retried = b.append(), b.append()
    for _ in range(2):
        b.append()
    b.group()
    b.claim(limit=3).settle(dead={dead: "hopeless"}, failed={retried: "boom"})
    b.claim(by="relay-2", limit=1)
    found = b.sql(f"select state, {column} is not null from penstock.delivery where stream = %s", b.stream)
    assert len(found) == 4 and len({row[0] for row in found}) >= 3
    assert all(bool(is_set) == (one == state) for one, is_set in found)
    value = "'x'" if column == "claimed_by" else "updated_at"
    b.refused(f"update penstock.deliveries set {column} = {value} where stream = %s and state = 'DEAD'", b.stream)


@clause("002-54", "claimed_at is set if and only if the state is CLAIMED")
def claimed_at_iff_claimed(b: Bench) -> None:
    _invariant(b, "claimed_at", "CLAIMED")


@clause("002-55", "published_at is set if and only if the state is PUBLISHED")
def published_at_iff_published(b: Bench) -> None:
    _invariant(b, "published_at", "PUBLISHED")


@clause("002-56", "claimed_by is set when the state is CLAIMED")
def claimed_by_when_claimed(b: Bench) -> None:
    _invariant(b, "claimed_by", "CLAIMED")


# --- delivery semantics ----------------------------------------------------------------------------------------------


@clause("002-57", "event_id lets others discard duplicates")
def id_for_deduplication(b: Bench) -> None:
    event = b.append()
    b.group()
    target: set[uuid.UUID] = set()
    first = b.claim()
    target.add(first.events[0].event_id)
    b.expire(first)
    target.add(b.claim().events[0].event_id)
    assert target == {event}


@clause("002-58", "delivery is at least once by default")
def at_least_once(b: Bench) -> None:
    b.append()
    b.group()
    deliveries = 0
    lease = b.claim()
    deliveries += len(lease)
    b.expire(lease)
    deliveries += len(b.claim())
    assert deliveries == 2


@clause("002-59", "stronger guarantees: effects through the settle happen exactly once")
def effects_exactly_once(b: Bench) -> None:
    event = b.append(ordering_key="k")
    b.group(keyed=True)
    lease = b.claim()
    emitted = f"{b.stream}-out"
    said = {event: {"state": {"k": {"seen": 1}}, "emit": [{"stream": emitted, "payload": {"n": 1}, "type": "t"}]}}
    lease.settle(effects=said)
    lease.settle(effects=said)  # the answer was lost: repeat the settle
    assert len(b.log.read(emitted)) == 1 and b.log.state(b.stream, "g", "k") == {"seen": 1}


@clause("002-60", "the conditions of guarantees are documented")
def conditions_are_documented(b: Bench) -> None:
    assert guarantees().count("*Conditions.*") >= 4


@clause("002-61", "the limits of guarantees are documented")
def limits_are_documented(b: Bench) -> None:
    assert guarantees().count("*Limits.*") >= 6


@clause("002-62", "the failure modes of guarantees are documented")
def failure_modes_are_documented(b: Bench) -> None:
    assert guarantees().count("*Failure modes.*") >= 3


@clause("002-63", "additional fields are allowed")
def additional_fields(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1)
    found = b.of(event)
    assert (found.failures, found.reason, found.error_code) == (1, "retry", "error")


@clause("002-64", "additional fields break nothing")
def additional_fields_are_harmless(b: Bench) -> None:
    event = b.append(ordering_key="k", headers={"h": "1"}, metadata={"m": 1})
    b.group(ordering="key")
    b.fail(1)
    again = b.claim().events[0]
    assert (again.event_id, again.json(), again.headers, again.ordering_key) == (event, {"n": 1}, {"h": "1"}, "k")
