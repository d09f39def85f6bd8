"""Whatever is accepted can be read again and blocks nothing; everything else is refused on entry."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest

import penstock
import penstock.testing
from penstock.core import codec
from penstock.core.moments import EARLIEST, LATEST
from penstock.errors import InvalidInput, InvalidPayload
from tests.support.log_steps import claim_and_settle_all
from tests.support.raw_sql import raw
from tests.support.roles import worker_role

NAN, INFINITE = float("nan"), float("inf")
HUGE = 2**63


class Odd(Enum):
    """A number that JSON does not have, as a subclass of float."""

    NUMBER = NAN


@dataclass
class Reading:
    """The same inside a field."""

    value: float


UNSAYABLE: dict[str, Any] = {
    "NaN": {"a": NAN},
    "infinity": {"a": [1, {"b": (2, INFINITE)}]},
    "minus infinity": [-INFINITE],
    "nothing else": NAN,
    "beside a null": {"a": None, "b": NAN},
    "in an enum": {"a": Odd.NUMBER},
    "in a dataclass": [Reading(-INFINITE)],
}


@pytest.mark.shows("K39")
@pytest.mark.parametrize("what", UNSAYABLE)
def test_numbers_that_json_does_not_have_are_refused(log: penstock.Log, what: str) -> None:
    payload = UNSAYABLE[what]
    for append in (
        lambda: log.append("orders", payload, type="t"),
        lambda: log.append_many("orders", [{"payload": {"a": None}, "type": "t"}, {"payload": payload, "type": "t"}]),
        lambda: log.append_many("orders", [{"payload": payload, "type": "t", "headers": {"a": "b"}}]),
    ):
        with pytest.raises(InvalidPayload):
            append()
    with pytest.raises(InvalidInput):
        log.append("orders", {}, type="t", metadata={"m": payload})
    log.append("orders", {"a": None, "nullable": "null", "b": 0.5}, type="t")
    assert [event.json() for event in log.read("orders")] == [{"a": None, "nullable": "null", "b": 0.5}]


@pytest.mark.shows("K39")
def test_a_settle_refuses_numbers_that_json_does_not_have(log: penstock.Log) -> None:
    log.append("orders", {}, type="t", ordering_key="k")
    log.create_group("orders", "g", keyed=True)
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    for said in (
        {"state": {"k": {"total": {"a": NAN}}}},
        {"emit": [{"stream": "out", "payload": [INFINITE], "type": "t"}]},
        {"state": {"k": {"a\0b": 1}}},
        {"state": {"\ud800": {"a": 1}}},
        {"due_after_seconds": NAN},
        {"due_after_seconds": 1e300},
    ):
        with pytest.raises(InvalidInput):
            lease.settle(**said)  # type: ignore[arg-type]
    for seconds in (NAN, INFINITE, 1e12, -1, HUGE):
        with pytest.raises(InvalidInput):
            lease.extend(seconds)
    assert lease.settle().published == 1
    assert log.read("out") == [] and log.state("orders", "g", "k") == {}


@pytest.mark.shows("K39")
def test_only_payloads_with_a_null_are_searched_for_such_numbers() -> None:
    """Such a number is encoded as null, so only texts that contain null are checked."""
    seen: list[Any] = []
    walk, codec.is_finite = codec.is_finite, lambda value: seen.append(value) is None  # type: ignore[assignment]
    try:
        codec.encode_json({"a": 1.5, "b": ["x"] * 100})
        codec.encode_json({"a": None})
    finally:
        codec.is_finite = walk
    assert seen == [{"a": None}]


# --- times ------------------------------------------------------------------------------------------------------------

TOO_FAR = {
    "infinity": ("'infinity'", 2**63 - 1),
    "minus infinity": ("'-infinity'", -(2**63)),
    "the year 20000": ("'20000-01-01'", 568_971_820_800_000_000),
    "before Christ": ("'0044-03-15 BC'", -63_549_000_000_000_000),
}


@pytest.mark.shows("K39")
@pytest.mark.parametrize("zone", [timezone(timedelta(hours=-14)), timezone(timedelta(hours=14))])
def test_the_earliest_and_latest_times_can_be_stored_and_others_are_refused(log: penstock.Log, zone: timezone) -> None:
    for moment in (EARLIEST, LATEST):
        log.append("orders", {}, type="t", available_at=moment)
    assert [event.available_at for event in log.read("orders")] == [EARLIEST, LATEST]
    log.create_group("orders", "g")
    assert len(claim_and_settle_all(log)) == 1
    (waiting,) = log.deliveries("orders", "g", state="PENDING")
    assert waiting.available_at == LATEST
    beyond = [moment.replace(tzinfo=zone) for moment in (datetime.min, datetime.max)]
    refused = 0
    for moment in beyond:
        try:
            log.append("beyond", {}, type="t", available_at=moment)
        except InvalidInput:
            refused += 1
    assert refused == 1 == len(log.read("beyond"))
    with pytest.raises(InvalidInput):
        for moment in beyond:
            log.deliveries("orders", "g", since=moment)


@pytest.mark.shows("K39")
@pytest.mark.parametrize("what", TOO_FAR)
def test_the_database_refuses_times_that_python_cannot_represent(log: penstock.Log, log_url: str, what: str) -> None:
    text, micros = TOO_FAR[what]
    with raw(log_url) as sql:
        value = micros if sql.kind == "sqlite" else f"timestamptz {text}"
        for column in ("available_at", "created_at"):
            with pytest.raises(sql.refusal):
                sql(
                    f"insert into penstock.events (stream, event_id, event_type, payload, {column}) values ('orders', "
                    f"'{uuid.uuid4()}', 't', {_bytes(sql.kind)}, {value})"
                )
        if sql.kind == "postgresql":
            with pytest.raises(sql.refusal) as caught:
                sql(f"select penstock.append('orders', 't', '{{}}'::jsonb, available_at => {text})")
            assert getattr(caught.value, "sqlstate", None) == "PS003"
    assert log.read("orders") == []


def _bytes(kind: str) -> str:
    return "x'7b7d'" if kind == "sqlite" else "'{}'::bytea"


@pytest.mark.shows("K39")
@pytest.mark.parametrize("members", [4, 600])
def test_stored_times_out_of_range_are_shown_as_the_nearest_valid_time(
    log: penstock.Log, log_url: str, members: int
) -> None:
    """Events stored before the checks existed: reads, claims and queries show the nearest valid time."""
    with raw(log_url) as sql:
        if sql.kind == "sqlite":
            for name in ("times", "names", "keys", "headers", "metadata"):
                sql(f"drop trigger penstock_events_{name}")
        else:
            for name in ("available_at_known", "created_at_known", "headers_are_text", "metadata_is_an_object"):
                sql(f"alter table penstock.events drop constraint events_{name}")
        for text, micros in TOO_FAR.values():
            value = micros if sql.kind == "sqlite" else f"timestamptz {text}"
            sql(
                "insert into penstock.events (stream, event_id, event_type, payload, available_at, headers, metadata) "
                f"values ('orders', '{uuid.uuid4()}', 't', {_bytes(sql.kind)}, {value}, '[1]', '{{\"a\": 1e400}}')"
            )
    if members > 4:
        log.append_many("orders", [{"payload": {}, "type": "t"}] * members)
    read = log.read("orders")
    assert [event.available_at for event in read[:4]] == [LATEST, EARLIEST, LATEST, EARLIEST]
    assert all(event.headers and event.metadata for event in read[:4])
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=1_000, claimed_by="w")
    assert lease is not None
    assert [event.available_at for event in lease.events][:2] == [EARLIEST, EARLIEST]
    lease.settle(failed={lease.events[0].event_id: "no"})
    assert log.claim("orders", "g", claimed_by="w") is None
    shown = log.deliveries("orders", "g", limit=10)
    assert [str(one.state) for one in shown[:4]] == ["PENDING", "PENDING", "PENDING", "PUBLISHED"]
    assert log.delivery("orders", "g", shown[0].event_id).available_at == LATEST
    assert log.event("orders", shown[0].offset).available_at == LATEST
    (stats,) = log.stats().groups
    assert (stats.pending, stats.published) == (3, 1 + len(read) - 4)
    assert log.reap() == 0


@pytest.mark.shows("K39")
def test_spark_reads_stored_times_out_of_range(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with raw(postgres_log_url) as sql:
        sql("alter table penstock.events drop constraint events_available_at_known")
        for text, _ in TOO_FAR.values():
            sql(
                "insert into penstock.events (stream, event_id, event_type, payload, available_at) "
                f"values ('orders', '{uuid.uuid4()}', 't', '', {text})"
            )
    postgres_log.append("orders", {}, type="t")
    store: Any = postgres_log.store
    batches = list(store.read_pieces("read.events", stream="orders", after=0, upto=10, limit=10))
    found = [one for batch in batches for one in batch.column("available_at").to_pylist()]
    assert found == [LATEST, EARLIEST, LATEST, EARLIEST, None]


# --- a producer's own SQL ---------------------------------------------------------------------------------------------

RAW = {
    "headers of another kind": "headers => '[1]'",
    "headers of numbers": """headers => '{"a": 1}'""",
    "nested headers": """headers => '{"a": ["b"]}'""",
    "metadata of another kind": "metadata => '7'",
    "a long key": "ordering_key => repeat('k', 513)",
    "an empty key": "partition_key => ''",
    "an odd name": "event_type => E't\\n'",
    "an odd content type": "content_type => E'a\\nb'",
    "a long payload": "payload => repeat('x', 1048577)::bytea",
}
ROWS = {
    "headers of another kind": ("headers", "'[1]'"),
    "headers of numbers": ("headers", """'{"a": 1}'"""),
    "nested headers": ("headers", """'{"a": ["b"]}'"""),
    "metadata of another kind": ("metadata", "'7'"),
    "a long key": ("ordering_key", "'" + "k" * 513 + "'"),
    "an empty key": ("partition_key", "''"),
}


@pytest.mark.shows("K39")
@pytest.mark.parametrize("what", RAW)
def test_the_sql_function_refuses_what_append_refuses(
    postgres_log: penstock.Log, postgres_log_url: str, what: str
) -> None:
    import psycopg

    fields = {"stream": "'orders'", "event_type": "'t'", "payload": "'{}'::bytea"}
    name, value = RAW[what].split(" => ", 1)
    fields[name] = value
    arguments = ", ".join(f"{one} => {text}" for one, text in fields.items())
    with worker_role(postgres_log_url, "producer") as (url, _), psycopg.connect(url) as producer:
        with pytest.raises(psycopg.Error) as caught:
            producer.execute(f"select penstock.append({arguments})")
        assert caught.value.sqlstate == "PS003"
    assert postgres_log.read("orders") == []


@pytest.mark.shows("K39")
@pytest.mark.parametrize("what", ROWS)
def test_a_raw_insert_of_an_invalid_event_is_refused(log: penstock.Log, log_url: str, what: str) -> None:
    column, value = ROWS[what]
    with raw(log_url) as sql, pytest.raises(sql.refusal):
        sql(
            f"insert into penstock.events (stream, event_id, event_type, payload, {column}) "
            f"values ('orders', '{uuid.uuid4()}', 't', {_bytes(sql.kind)}, {value})"
        )
    assert log.read("orders") == []


# --- filters and positions --------------------------------------------------------------------------------------------

DOORS: dict[str, Callable[[penstock.Log], Any]] = {
    "read after": lambda log: log.read("orders", after=HUGE),
    "read limit": lambda log: log.read("orders", limit=HUGE),
    "read stream": lambda log: log.read("or\0ders"),
    "event": lambda log: log.event("orders", HUGE),
    "negative event": lambda log: log.event("orders", -1),
    "event stream": lambda log: log.event("\ud800", 1),
    "delivery": lambda log: log.delivery("orders", "g", HUGE),
    "deliveries after": lambda log: log.deliveries("orders", "g", after=HUGE),
    "deliveries limit": lambda log: log.deliveries("orders", "g", limit=HUGE),
    "deliveries error": lambda log: log.deliveries("orders", "g", error="a\0"),
    "deliveries type": lambda log: log.deliveries("orders", "g", type="\ud800"),
    "deliveries group": lambda log: log.deliveries("orders", "\udfff"),
    "start": lambda log: log.create_group("orders", "h", start=HUGE),
    "start as text": lambda log: log.create_group("orders", "h", start="e\0nd"),
    "to": lambda log: log.rewind("orders", "g", to=HUGE),
    "to before the beginning": lambda log: log.rewind("orders", "g", to=-1),
    "upto": lambda log: log.prune("orders", upto=HUGE),
    "claim limit": lambda log: log.claim("orders", "g", limit=HUGE, claimed_by="w"),
    "claim seconds": lambda log: log.claim("orders", "g", claimed_by="w", lease_seconds=math.inf),
    "claimed_by": lambda log: log.claim("orders", "g", claimed_by="w\0"),
    "claim stream": lambda log: log.claim("\ud800", "g", claimed_by="w"),
    "redrive error": lambda log: log.redrive("orders", "g", error="\0"),
    "redrive by": lambda log: log.redrive("orders", "g", all=True, by="\ud800"),
    "replay type": lambda log: log.replay("orders", "g", type="\0"),
    "kill reason": lambda log: log.kill("orders", "g", event_ids=[], reason="\ud800"),
    "pause reason": lambda log: log.pause("orders", "g", reason="\0"),
    "skip key": lambda log: log.skip("orders", "g", "\0"),
    "state key": lambda log: log.state("orders", "g", "\ud800"),
    "bind headers": lambda log: log.bind("orders", "g", headers={"a": "\0"}),
    "bind types": lambda log: log.bind("orders", "g", types=["a\0"]),
    "types": lambda log: log.create_group("orders", "h", types=["\ud800"]),
    "lanes": lambda log: log.create_group("orders", "h", ordering="key", lanes=HUGE),
    "attempts": lambda log: log.create_group("orders", "h", retry=penstock.Retry(max_attempts=HUGE)),
    "id from text": lambda _: penstock.event_id("\ud800"),
}


@pytest.mark.shows("K39")
@pytest.mark.parametrize("door", DOORS)
def test_every_verb_refuses_invalid_arguments_with_a_clear_error(log: penstock.Log, log_url: str, door: str) -> None:
    log.append("orders", {}, type="t")
    log.create_group("orders", "g")
    tables = ("events", "groups", "bindings", "leases", "deliveries", "audit")
    with raw(log_url) as sql:
        before = [sql(f"select count(*) from penstock.{table}") for table in tables]
        with pytest.raises(InvalidInput) as caught:
            DOORS[door](log)
        assert caught.value.code and caught.value.hint and len(caught.value.message) < 300
        assert [sql(f"select count(*) from penstock.{table}") for table in tables] == before


@pytest.mark.shows("K39")
def test_a_retry_delay_beyond_the_latest_time_does_not_fail_the_settle(clocked: penstock.Log) -> None:
    """A stored policy may say anything: the wait is long, and the settle succeeds."""
    clocked.append("orders", {}, type="t")
    clocked.create_group("orders", "g", retry=penstock.Retry(base_seconds=1e18, cap_seconds=1e18, jitter=0))
    lease = clocked.claim("orders", "g", claimed_by="w")
    assert lease is not None and lease.settle(failed={lease.events[0].event_id: "no"}).failed == 1
    (waiting,) = clocked.deliveries("orders", "g")
    assert waiting.available_at is not None and waiting.available_at > datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.shows("K47")
def test_a_redriven_event_still_waits_for_its_available_at(
    clocked: penstock.Log, clock: penstock.testing.VirtualClock
) -> None:
    """Killed before it was due: after the redrive it still waits until it is due."""
    date = clock.now() + timedelta(hours=1)
    later, at_once = (clocked.append("orders", {}, type="t", available_at=at).event_id for at in (date, None))
    clocked.create_group("orders", "g")
    clocked.kill("orders", "g", event_ids=[later, at_once])
    assert clocked.redrive("orders", "g", all=True).count == 2
    shown = {one.event_id: one.available_at for one in clocked.deliveries("orders", "g", state="PENDING")}
    assert shown == {later: date, at_once: clock.now()}
    assert claim_and_settle_all(clocked) == [at_once]
    clock.advance(3600)
    assert claim_and_settle_all(clocked) == [later]
    clocked.replay("orders", "g", all=True)
    assert sorted(claim_and_settle_all(clocked)) == sorted([later, at_once])
