"""Page 002: what an event is: its fields, attempts and times."""

from __future__ import annotations

import uuid
from datetime import timedelta

from penstock.core.event import event_id as id_of
from penstock.core.retry import Retry
from penstock.errors import DuplicateMismatch, InvalidName, MissingField
from penstock.testing.clauses.bench import Bench, immutable, refuses
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
def id_isimmutable(b: Bench) -> None:
    immutable(b, "event_id", str(uuid.uuid4()))


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
def type_isimmutable(b: Bench) -> None:
    immutable(b, "event_type", "other")


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
def created_at_isimmutable(b: Bench) -> None:
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
