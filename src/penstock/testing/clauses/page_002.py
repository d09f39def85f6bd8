"""Page 002: what an event is."""

from __future__ import annotations

import uuid
from datetime import timedelta

from penstock.core.event import event_id as id_of
from penstock.core.retry import Retry
from penstock.errors import DuplicateMismatch, InvalidName, LeaseLost, MissingField
from penstock.testing.clauses.bench import Bench, guarantees, refuses
from penstock.testing.clauses.registry import clause

_REQUIRED = ("event_id", "event_type", "payload", "state", "created_at")


# --- fields ----------------------------------------------------------------------------------------------------------


@clause("002-1", "an event has its required fields")
def required_fields(b: Bench) -> None:
    event = b.append()
    b.group()
    found = b.of(event)
    assert all(getattr(found, name) is not None for name in _REQUIRED)
    refuses(MissingField, lambda: b.log.append(b.stream, {"n": 1}, type=None))
    refuses(MissingField, lambda: b.log.append(b.stream, None, type="t"))


@clause("002-2", "event_id is unique")
def id_is_unique(b: Bench) -> None:
    chosen = id_of(b.stream)
    assert not b.log.append(b.stream, {"n": 1}, type="t", event_id=chosen).duplicate
    assert b.log.append(b.stream, {"n": 1}, type="t", event_id=chosen).duplicate
    refuses(DuplicateMismatch, lambda: b.log.append(b.stream, {"n": 2}, type="t", event_id=chosen))
    assert len(b.log.read(b.stream)) == 1


@clause("002-3", "event_id is immutable")
def id_is_immutable(b: Bench) -> None:
    _immutable(b, "event_id", str(uuid.uuid4()))


@clause("002-4", "event_id has a globally unique format")
def id_is_global(b: Bench) -> None:
    assert b.append() != b.append()
    ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    stored = b.log.append(b.stream, {"n": 1}, type="t", event_id=ulid).event_id
    assert b.log.append(b.stream, {"n": 1}, type="t", event_id=stored).duplicate


@clause("002-5", "event_type is a stable identifier")
def type_is_stable(b: Bench) -> None:
    event = b.append(type="user.created.v2")
    b.group()
    assert b.of(event).event_type == "user.created.v2" == b.claim().events[0].event_type
    refuses(InvalidName, lambda: b.append(type="user created"))


@clause("002-6", "event_type is immutable")
def type_is_immutable(b: Bench) -> None:
    _immutable(b, "event_type", "other")


@clause("002-7", "event_type does not depend on a transport")
def type_is_free_of_transport(b: Bench) -> None:
    names = ["order.created", "Order:Created", "order_created-1"]
    for name in names:
        b.append(type=name)
    assert [one.event_type for one in b.log.read(b.stream)] == names


@clause("002-8", "a payload may be anything")
def any_payload(b: Bench) -> None:
    given = [{"a": [1, None, "é"]}, [1, 2], "text", 7, 1.5, True, b"", b"\x00\xff\xfe"]
    for payload in given:
        b.append(payload)
    found = b.log.read(b.stream)
    assert [one.payload if isinstance(want, bytes) else one.json() for one, want in zip(found, given, strict=True)] == (
        given
    )


@clause("002-9", "a payload is opaque")
def payload_is_opaque(b: Bench) -> None:
    odd = b'{"broken json'
    event = b.append(odd, content_type="application/json")
    b.group()
    assert bytes(b.claim().events[0].payload) == odd
    assert b.of(event).payload == odd


@clause("002-10", "a payload is not modified")
def payload_is_unmodified(b: Bench) -> None:
    odd = b'{"a":  1.0,\n "a": 2}'
    b.append(odd, content_type="application/json")
    b.group()
    b.fail(2)
    assert bytes(b.claim().events[0].payload) == odd
    b.refused("update penstock.events set payload = %s where stream = %s", b"other", b.stream)


@clause("002-11", "state is one of four")
def state_is_one_of_four(b: Bench) -> None:
    b.published_as_row()
    b.refused("update penstock.deliveries set state = 'LOST' where stream = %s", b.stream)


@clause("002-12", "state is managed by the lifecycle")
def state_is_managed(b: Bench) -> None:
    b.published_as_row()
    b.refused(
        "update penstock.deliveries set state = 'DEAD', published_at = null, dead_at = updated_at where stream = %s",
        b.stream,
    )


@clause("002-13", "created_at is set when the event is stored")
def created_at_is_set(b: Bench) -> None:
    b.clock.advance(5)
    b.append()
    assert b.log.read(b.stream)[0].created_at == b.clock.now()


@clause("002-14", "created_at is immutable")
def created_at_is_immutable(b: Bench) -> None:
    b.append()
    b.refused("update penstock.events set created_at = available_at where stream = %s", b.stream)


@clause("002-16", "partition_key defines no order")
def partition_key_orders_nothing(b: Bench) -> None:
    first = b.append(partition_key="p")
    second = b.append(partition_key="p")
    b.group(ordering="key", retry=Retry(base_seconds=60, jitter=0))
    while (lease := b.try_claim()) is not None:
        lease.settle(failed={event.event_id: "boom" for event in lease.events if event.event_id == first})
    assert (b.of(first).state, b.of(second).state) == ("PENDING", "PUBLISHED")


@clause("002-17", "events of one ordering key are processed in order")
def ordering_key_orders(b: Bench) -> None:
    first, second = b.append(ordering_key="k"), b.append(ordering_key="k")
    b.group(ordering="key", retry=Retry(base_seconds=60, jitter=0))
    b.claim().settle(failed={first: "boom"})
    assert b.of(second).state == "PENDING" and b.try_claim() is None
    b.clock.advance(60)
    order = []
    while (lease := b.try_claim()) is not None:
        order += [one.event_id for one in lease.events]
        lease.settle()
    assert order == [first, second]


@clause("002-18", "metadata may be attached")
def metadata_is_kept(b: Bench) -> None:
    b.append(metadata={"span": "abc", "source": {"service": "shop"}})
    assert b.log.read(b.stream)[0].metadata == {"span": "abc", "source": {"service": "shop"}}


@clause("002-19", "metadata may be used while an event is processed")
def metadata_reaches_the_worker(b: Bench) -> None:
    b.append(metadata={"span": "abc"})
    b.group()
    assert b.claim().events[0].metadata == {"span": "abc"}


@clause("002-20", "metadata has no effect on delivery")
def metadata_changes_nothing(b: Bench) -> None:
    b.append(metadata={"state": "DEAD", "available_at": "2999-01-01", "ordering_key": "k"})
    b.append()
    b.group(ordering="key")
    handed_out = 0
    while (lease := b.try_claim()) is not None:
        handed_out += lease.settle().published
    assert handed_out == 2


@clause("002-25", "headers may be used for routing")
def headers_route(b: Bench) -> None:
    b.append(headers={"tenant": "us"})
    wanted = b.append(headers={"tenant": "eu", "v": "1"})
    b.group(headers={"tenant": "eu"})
    assert [one.event_id for one in b.claim().events] == [wanted]


@clause("002-26", "headers may be empty")
def headers_may_be_empty(b: Bench) -> None:
    b.append(headers={})
    b.append()
    assert [one.headers for one in b.log.read(b.stream)] == [{}, {}]


# --- attempts and errors ---------------------------------------------------------------------------------------------


@clause("002-27", "attempts is the number of attempts")
def attempts_count(b: Bench) -> None:
    event = b.append()
    b.group()
    assert b.of(event).attempts == 0
    b.fail(2)
    assert b.of(event).attempts == 2


@clause("002-28", "attempts never decrease")
def attempts_never_decrease(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(2)
    b.refused("update penstock.deliveries set attempts = 1 where stream = %s", b.stream)
    assert b.of(event).attempts == 2


@clause("002-29", "attempts are incremented before each attempt")
def attempts_grow_at_the_claim(b: Bench) -> None:
    event = b.append()
    b.group()
    lease = b.claim()
    assert lease.events[0].attempts == 1 == b.of(event).attempts
    lease.settle(failed={event: "boom"})
    assert b.claim().events[0].attempts == 2


@clause("002-30", "attempts may decide about a retry")
def failures_decide(b: Bench) -> None:
    event = b.append()
    b.group(retry=Retry(max_attempts=2, base_seconds=0, jitter=0))
    b.fail(2)
    assert b.of(event).state == "DEAD"


@clause("002-31", "last_error has a message and a code")
def error_has_message_and_code(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1, error=ValueError("no amount"))
    assert "no amount" in (b.of(event).last_error or "") and b.of(event).error_code == "ValueError"


@clause("002-32", "last_error is updated on failure")
def error_is_updated(b: Bench) -> None:
    event = b.append()
    b.group()
    b.fail(1, error="one")
    b.fail(1, error="two")
    assert b.of(event).last_error == "two"


# --- available_at ----------------------------------------------------------------------------------------------------


@clause("002-33", "available_at delays, backs off and schedules")
def uses_of_available_at(b: Bench) -> None:
    delayed = b.append(available_at=b.clock.now() + timedelta(seconds=5))
    b.group(retry=Retry(base_seconds=7, jitter=0))
    assert b.try_claim() is None
    b.clock.advance(5)
    b.fail(1)
    assert b.of(delayed).available_at == b.clock.now() + timedelta(seconds=7)
    later = b.clock.now() + timedelta(hours=1)
    b.log.reschedule(b.stream, "g", event_ids=[delayed], available_at=later, by="check")
    assert b.of(delayed).available_at == later


@clause("002-34", "available_at defines when an event becomes eligible")
def available_at_defines_eligibility(b: Bench) -> None:
    b.append(available_at=b.clock.now() + timedelta(seconds=5))
    b.group()
    b.clock.advance(5)
    assert b.try_claim() is not None


@clause("002-35", "an event is never claimed before available_at")
def never_early(b: Bench) -> None:
    b.append(available_at=b.clock.now() + timedelta(seconds=5))
    b.group()
    b.clock.advance(4.999)
    assert b.try_claim() is None


@clause("002-36", "without available_at an event is eligible at once")
def eligible_at_once(b: Bench) -> None:
    b.append()
    b.group()
    assert b.try_claim() is not None


@clause("002-37", "an expired lease may override available_at")
def expiry_overrides(b: Bench) -> None:
    for _ in range(2):
        b.append()
    b.group()
    b.expire(b.claim())
    assert b.try_claim() is not None


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


def _immutable(b: Bench, column: str, value: object) -> None:
    """Neither the event nor its delivery lets the column change."""
    event = b.published_as_row()
    b.refused(f"update penstock.events set {column} = %s where stream = %s", value, b.stream)
    if column in ("event_id", "event_type", "ordering_key"):
        b.refused(f"update penstock.deliveries set {column} = %s where stream = %s", value, b.stream)
    assert b.of(event).event_id == event


@clause("002-45", "immutable: event_id")
def immutable_event_id(b: Bench) -> None:
    _immutable(b, "event_id", str(uuid.uuid4()))


@clause("002-46", "immutable: event_type")
def immutable_event_type(b: Bench) -> None:
    _immutable(b, "event_type", "other")


@clause("002-47", "immutable: ordering_key")
def immutable_ordering_key(b: Bench) -> None:
    _immutable(b, "ordering_key", "other")


@clause("002-48", "immutable: partition_key")
def immutable_partition_key(b: Bench) -> None:
    _immutable(b, "partition_key", "other")


@clause("002-49", "immutable: payload")
def immutable_payload(b: Bench) -> None:
    _immutable(b, "payload", b"other")


@clause("002-50", "immutable: headers")
def immutable_headers(b: Bench) -> None:
    _immutable(b, "headers", '{"tenant": "us"}')


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
    """The column is set in this state and in no other, and the database holds it."""
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
    lease.settle(effects=said)  # the answer was lost: say it again
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
