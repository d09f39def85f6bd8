"""Ingest from Valkey streams: nothing is lost and nothing is stored twice, whatever happens in between."""

from __future__ import annotations

import json
import logging
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from valkey.exceptions import BusyLoadingError

import penstock
from penstock.connect import Entry, ValkeyStream
from penstock.connect.valkey_reader import ValkeyReader
from penstock.declare.ingest import Ingest
from penstock.engine.ingest.engine import IngestEngine
from penstock.log.ingest import Overtaken
from penstock.testing import CrashPoint, StatementCounter, VirtualClock
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.forks import killed_in_child
from tests.support.ingesting import app_with, count_of, ingest_until_drained, ingesting, numbers
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.logs import MakeLog
from tests.support.postgres_server import PostgresServer
from tests.support.raw_sql import raw
from tests.support.valkey_server import ValkeyServer
from tests.support.waiting import wait_until

IDLE = 0.5  # seconds after which a pending entry is taken over, where a test waits for that


def source_of(valkey: ValkeyServer, stream: str, **options: Any) -> ValkeyStream:
    return ValkeyStream(valkey.url, stream, **options)


def add(valkey: ValkeyServer, stream: str, count: int, first: int = 0) -> list[bytes]:
    """Add entries with n = first, first + 1, …; return their ids."""
    pipeline = valkey.client().pipeline(transaction=False)
    for n in range(first, first + count):
        pipeline.xadd(stream, {"n": n})
    found: list[bytes] = pipeline.execute()
    return found


def is_loaded(valkey: ValkeyServer) -> bool:
    """Whether a server that was started has read what it had stored."""
    try:
        return bool(valkey.client().ping())
    except BusyLoadingError:
        return False


def pending(valkey: ValkeyServer, stream: str) -> int:
    return int(valkey.client().xpending(stream, "penstock")["pending"])


def read_and_store(log: penstock.Log, source: ValkeyStream, reader: Any) -> int:
    """Do what an ingester does with one batch, but for the acknowledgement; return how many events were stored."""
    batch = reader.read(0.1)
    made = Ingest(source, "clicks").made_of(reader.source, batch.entries)
    return log.ingests.store_entries(reader.source, batch.mark, made).stored


@pytest.mark.shows("R07")
@pytest.mark.clause("003-10")
def test_entries_become_events_in_their_order_and_are_acknowledged(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    add(valkey, stream, 5_000)
    assert ingest_until_drained(log, source_of(valkey, stream)) == {"stored": 5_000}
    assert numbers(log) == [*range(5_000)] and pending(valkey, stream) == 0
    add(valkey, stream, 10, first=5_000)
    assert ingest_until_drained(log, source_of(valkey, stream)) == {"stored": 10}
    assert numbers(log) == [*range(5_010)]


@pytest.mark.shows("R08")
def test_values_of_every_kind_survive(log: penstock.Log, valkey: ValkeyServer, stream: str) -> None:
    client = valkey.client()
    nested = {"a": {"b": [1, 2.5, None, True, {"c": "ü"}]}, "no": False, "nothing": None}
    large = "x" * 1_000_000
    client.xadd(stream, {"payload": json.dumps(nested), "type": "nested", "tenant": "eu"})
    client.xadd(stream, {"text": "ü", "bytes": b"\x00\xff", "number": 7, "empty": ""})
    client.xadd(stream, {"payload": b"\x00\xff\x80", "content_type": "image/png"})
    client.xadd(stream, {"large": large})
    client.execute_command("XADD", stream, "*", "twice", "1", "twice", "2", "once", "3")
    assert ingest_until_drained(log, source_of(valkey, stream)) == {"stored": 5}
    first, flat, binary, big, twice = log.read("clicks")
    assert (first.json(), first.event_type, dict(first.headers)) == (nested, "nested", {"tenant": "eu"})
    assert flat.json() == {"text": "ü", "bytes": {"base64": "AP8="}, "number": "7", "empty": ""}
    assert (flat.event_type, flat.content_type) == (f"{stream}.entry", "application/json")
    assert (binary.payload, binary.content_type) == (b"\x00\xff\x80", "image/png")
    assert big.json() == {"large": large} and twice.json() == {"twice": ["1", "2"], "once": "3"}


@pytest.mark.shows("R12")
def test_what_cannot_become_an_event_is_rejected_with_its_position_and_acknowledged(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    client = valkey.client()
    ids = [
        client.xadd(stream, {"payload": b"x" * (1024 * 1024 + 1)}),
        client.xadd(stream, {"payload": "{}", "event_type": "not a name"}),
        client.xadd(stream, {"payload": "{}", "key": "k" * 513}),
        client.xadd(stream, {b"\xff": "a name that is no text"}),
        client.xadd(stream, {f"field{n}": b"\x01" for n in range(60_000)} | {"type": "a b"}),
        client.execute_command("XADD", stream, "*", "payload", "1", "payload", "2"),
    ]
    add(valkey, stream, 1)
    assert ingest_until_drained(log, source_of(valkey, stream)) == {"stored": 1, "rejected": 6}
    found = [event.json() for event in log.read("clicks.rejected")]
    assert [one["position"].encode() for one in found] == ids
    assert [one["code"] for one in found] == [
        *("too_large", "invalid_name", "too_large", "UnicodeDecodeError", "too_large", "invalid_input")
    ]
    assert [one["cut"] for one in found] == [True, False, False, False, True, False]
    assert {event.event_type for event in log.read("clicks.rejected")} == {"ingest.rejected"}
    assert b64decode(found[3]["fields"][0][0]) == b"\xff" and "1,048,577 bytes" in found[0]["reason"]
    assert pending(valkey, stream) == 0


@pytest.mark.shows("R12")
def test_a_mapping_maps_drops_and_what_it_raises_is_rejected(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    add(valkey, stream, 6)

    def by_hand(entry: Entry) -> Any:
        n = int(entry.text("n") or "")
        assert entry.timestamp is not None and entry.field("m") is None
        if n == 1:
            return None
        if n == 2:
            raise KeyError("no country")
        if n == 3:
            return {"payload": {}, "type": "t", "colour": "red"}
        if n == 4:
            return ["no mapping"]
        return {"payload": {"n": n}, "type": "click", "ordering_key": f"k{n}", "headers": {"h": "1"}}

    assert ingest_until_drained(log, source_of(valkey, stream), map=by_hand) == {
        **{"stored": 2, "rejected": 3, "dropped": 1}
    }
    assert [(one.json()["n"], one.event_type, one.ordering_key, dict(one.headers)) for one in log.read("clicks")] == [
        (0, "click", "k0", {"h": "1"}),
        (5, "click", "k5", {"h": "1"}),
    ]
    assert [one.json()["code"] for one in log.read("clicks.rejected")] == ["KeyError", "invalid_input", "invalid_input"]
    assert pending(valkey, stream) == 0


@pytest.mark.shows("R12")
def test_an_id_that_another_event_has_is_rejected_and_the_same_event_is_stored_once(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    client = valkey.client()
    taken = [log.append("other", {"n": n}, type="t").event_id for n in range(20)]
    for n, one in enumerate(taken):
        client.xadd(stream, {"event_id": str(one), "event_type": "t", "payload": f'{{"n":{n}}}'})
        client.xadd(stream, {"n": n})
    again = {"event_id": str(penstock.event_id("a")), "event_type": "t", "payload": '{"n":20}'}
    for fields in (again, again, {**again, "payload": '{"n":21}'}):
        client.xadd(stream, fields)
    assert ingest_until_drained(log, source_of(valkey, stream)) == {"stored": 21, "known": 1, "rejected": 21}
    assert numbers(log) == [*range(21)]
    assert {event.json()["code"] for event in log.read("clicks.rejected")} == {"duplicate_mismatch"}
    client.xadd(stream, again)  # now it is stored
    assert ingest_until_drained(log, source_of(valkey, stream)) == {"known": 1}


@pytest.mark.shows("R08")
@pytest.mark.parametrize("by", ["own", "another"])
def test_pending_entries_whose_body_is_gone_are_acknowledged_and_counted(
    log: penstock.Log, valkey: ValkeyServer, stream: str, by: str
) -> None:
    client = valkey.client()
    ids = add(valkey, stream, 5)
    source = source_of(valkey, stream, min_idle_seconds=IDLE)
    consumer = source.consumer if by == "own" else "another"
    client.xgroup_create(stream, "penstock", "0")
    client.xreadgroup("penstock", consumer, {stream: ">"})
    client.xdel(stream, ids[1], ids[3])
    assert ingest_until_drained(log, source) == {"stored": 3, "gone": 2}
    assert numbers(log) == [0, 2, 4] and pending(valkey, stream) == 0


@pytest.mark.shows("R07")
@pytest.mark.clause("003-22")
@pytest.mark.clause("003-23")
@pytest.mark.clause("003-24")
@pytest.mark.clause("003-25")
def test_a_live_worker_takes_over_what_idles_at_a_dead_one(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    assert ValkeyStream(valkey.url, stream).min_idle_seconds == 60
    client = valkey.client()
    with ingesting(log, source_of(valkey, stream, min_idle_seconds=IDLE)) as engine:
        add(valkey, stream, 1)
        wait_until(lambda: count_of(engine, "stored") == 1)
        transaction = client.pipeline()  # nobody else can read in between
        for n in range(1, 11):
            transaction.xadd(stream, {"n": n})
        transaction.xreadgroup("penstock", "dead", {stream: ">"})
        *_, delivered = transaction.execute()
        assert len(delivered[0][1]) == 10
        wait_until(lambda: sorted(numbers(log)) == [*range(11)])
        wait_until(lambda: pending(valkey, stream) == 0)
    assert "cmdstat_xautoclaim" in client.info("commandstats")


@pytest.mark.shows("R07", "X02")
@pytest.mark.clause("003-11")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_ingester_killed_at_any_step_loses_nothing_and_stores_nothing_twice(
    make_log: MakeLog, log_url: str, valkey: ValkeyServer, stream: str, when: str
) -> None:
    """A step is a statement of the database, its commit, or a command of Valkey."""
    log = make_log()
    add(valkey, f"{stream}-0", 5)
    steps = StatementCounter()
    run_with_hook(log_url, source_of(valkey, f"{stream}-0"), steps, "whole")
    assert {"XREADGROUP", "XACK", "XAUTOCLAIM", "ingest.lock", "append", "ingest.remember", "commit"} <= {*steps.blocks}
    killed, number = True, 0
    while killed:
        number += 1
        name, into = f"{stream}-{number}", f"{when}-{number}"
        add(valkey, name, 5)
        source = source_of(valkey, name)
        killed = killed_in_child(partial(run_with_hook, log_url, source, CrashPoint(when, number), into))
        counts = ingest_until_drained(log, source, into=into)
        assert numbers(log, into) == [*range(5)], f"killed {when} step {number}: {counts}"
        assert pending(valkey, name) == 0
    assert number > 15


def run_with_hook(url: str, source: ValkeyStream, hook: Callable[[str, str], None], into: str) -> None:
    asked = ValkeyReader._ask

    def ask(self: Any, *command: Any) -> Any:
        hook("before", command[0])
        answer = asked(self, *command)
        hook("after", command[0])
        return answer

    ValkeyReader._ask = ask  # type: ignore[method-assign]
    try:
        with penstock.open(url, hook=hook) as log:
            if isinstance(hook, CrashPoint):
                hook.arm()
            ingest_until_drained(log, source, into=into)
    finally:
        ValkeyReader._ask = asked  # type: ignore[method-assign]


@pytest.mark.shows("R11")
@pytest.mark.clause("003-11")
def test_a_redelivery_is_recognised_after_its_events_were_pruned(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    add(valkey, stream, 20)
    source = source_of(valkey, stream)
    assert ingest_until_drained(log, source) == {"stored": 20}
    last = log.read("clicks", limit=100)[-1].offset
    log.prune("clicks", upto=last)
    assert numbers(log) == []
    valkey.client().execute_command("XGROUP", "SETID", stream, "penstock", "0")
    add(valkey, stream, 1, first=20)
    assert ingest_until_drained(log, source) == {"known": 20, "stored": 1}
    assert numbers(log) == [20]


@pytest.mark.shows("R11")
def test_what_a_paused_ingester_read_is_not_stored_after_another_took_it_over(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    add(valkey, stream, 10)
    source = source_of(valkey, stream, consumer="paused", min_idle_seconds=IDLE)
    reader = source.open(log.ingests)
    reader.read(0.1)
    reader._history = b"0-0"
    asleep = reader.read(0.1)
    assert asleep is not None and len(asleep.entries) == 10
    assert ingest_until_drained(log, source_of(valkey, stream, consumer="live", min_idle_seconds=IDLE)) == {
        "stored": 10
    }
    made = Ingest(source, "clicks").made_of(reader.source, asleep.entries)
    wait_until(lambda: not asleep.mark.ours())
    with pytest.raises(Overtaken):  # too old, whatever is remembered
        log.ingests.store_entries(reader.source, asleep.mark, made)
    young = asleep.mark.__class__(asleep.mark.ids, lambda: True)
    assert log.ingests.store_entries(reader.source, young, made)[:2] == (0, 10)  # and remembered
    reader.overtaken(asleep)
    assert reader.read(0.1) is None
    reader.close()
    assert numbers(log) == [*range(10)]


@pytest.mark.shows("R11")
@pytest.mark.clause("003-25")
def test_an_ingester_that_wakes_up_after_another_took_over_stores_nothing_and_goes_on(
    make_log: MakeLog, valkey: ValkeyServer, stream: str
) -> None:
    add(valkey, stream, 10)
    asleep, wake = threading.Event(), threading.Event()

    def slow(entry: Entry) -> Any:
        asleep.set()
        assert wake.wait(PATIENCE_SECONDS)
        return {"payload": {"n": int(entry.text("n") or "")}, "type": "slow"}

    log = make_log()
    paused = source_of(valkey, stream, consumer="paused", min_idle_seconds=IDLE)
    with ingesting(log, paused, map=slow) as engine:
        assert asleep.wait(PATIENCE_SECONDS)
        live = source_of(valkey, stream, consumer="live", min_idle_seconds=IDLE)
        assert ingest_until_drained(make_log(), live) == {"stored": 10}
        wake.set()
        wait_until(lambda: count_of(engine, "overtaken") >= 1)
        add(valkey, stream, 1, first=10)
        wait_until(lambda: count_of(engine, "stored") == 1)
    assert numbers(log) == [*range(11)]
    assert [event.event_type for event in log.read("clicks")] == [f"{stream}.entry"] * 10 + ["slow"]


@pytest.mark.shows("R11")
def test_a_batch_too_old_to_be_ours_is_read_again(log: penstock.Log, valkey: ValkeyServer, stream: str) -> None:
    """A database that was away for longer than entries may idle: nothing is lost, nothing is stored twice."""
    add(valkey, stream, 10)
    source = source_of(valkey, stream, min_idle_seconds=IDLE, batch=10)
    reader = source.open(log.ingests)
    old = reader.read(0.1)
    assert old is not None
    wait_until(lambda: not old.mark.ours())
    with pytest.raises(Overtaken):
        log.ingests.store_entries(reader.source, old.mark, Ingest(source, "clicks").made_of("s", old.entries))
    assert numbers(log) == []
    reader.overtaken(old)
    assert read_and_store(log, source, reader) == 5, "fewer at once"
    reader.close()
    assert ingest_until_drained(log, source) == {"known": 5, "stored": 5}


@pytest.mark.shows("R11")
def test_entries_are_remembered_for_the_days_that_were_asked_for(
    clocked: penstock.Log, clock: VirtualClock, valkey: ValkeyServer, stream: str
) -> None:
    source = source_of(valkey, stream, remember_days=3)
    add(valkey, stream, 10)
    assert ingest_until_drained(clocked, source) == {"stored": 10}
    assert len(remembered(clocked)) == 1
    clock.advance(timedelta(days=2.9).total_seconds())
    ingest_until_drained(clocked, source)
    assert len(remembered(clocked)) == 1
    clock.advance(timedelta(days=0.2).total_seconds())
    ingest_until_drained(clocked, source)
    assert remembered(clocked) == []


@pytest.mark.shows("R11")
def test_an_acknowledgement_that_nobody_noted_is_asked_for(
    clocked: penstock.Log, clock: VirtualClock, valkey: ValkeyServer, stream: str
) -> None:
    """The process died between the acknowledgement and its note, or before the acknowledgement."""
    source = source_of(valkey, stream, consumer="dead", min_idle_seconds=3_600)
    add(valkey, stream, 3)
    reader = source.open(clocked.ingests)
    read_and_store(clocked, source, reader)
    assert [one[-1] for one in remembered(clocked)] == [None]
    clock.advance(3_700)
    clocked.ingests.forget(reader.source, 7, reader._is_pending)
    assert [one[-1] for one in remembered(clocked)] == [None], "the source would send it again"
    valkey.client().xack(stream, "penstock", *(entry_id for entry_id, _ in valkey.client().xrange(stream)))
    clocked.ingests.forget(reader.source, 7, reader._is_pending)
    assert [one[-1] for one in remembered(clocked)] != [None]
    clock.advance(timedelta(days=7.1).total_seconds())
    clocked.ingests.forget(reader.source, 7, reader._is_pending)
    assert remembered(clocked) == []
    reader.close()


def remembered(log: penstock.Log) -> list[Any]:
    with raw(log.store.url) as sql:
        return sql("select id, acknowledged_at from penstock.ingest_ranges order by id")


@pytest.mark.shows("R07")
def test_two_ingesters_at_once_store_every_entry_once(make_log: MakeLog, valkey: ValkeyServer, stream: str) -> None:
    first, second = make_log(), make_log()
    with (
        ingesting(first, source_of(valkey, stream, consumer="a", batch=50)) as one,
        ingesting(second, source_of(valkey, stream, consumer="b", batch=50)) as other,
    ):
        for start in range(0, 4_000, 500):
            add(valkey, stream, 500, start)
        wait_until(lambda: count_of(one, "stored") + count_of(other, "stored") >= 4_000)
        wait_until(lambda: pending(valkey, stream) == 0)
        assert count_of(one, "stored") and count_of(other, "stored")
    assert sorted(numbers(first)) == [*range(4_000)]


@pytest.mark.shows("K42", "R07")
def test_a_server_that_is_killed_is_waited_for(
    log: penstock.Log, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    with ValkeyServer() as own, ingesting(log, source_of(own, stream)) as engine:
        add(own, stream, 100)
        wait_until(lambda: count_of(engine, "stored") == 100)
        own.kill()
        wait_until(lambda: count_of(engine, "source_errors") > 0)
        own.start()
        wait_until(lambda: is_loaded(own))
        add(own, stream, 100, first=100)
        wait_until(lambda: count_of(engine, "stored") == 200)
    assert numbers(log) == [*range(200)]
    said = [record.getMessage() for record in caplog.records]
    assert any(f"waiting for valkey 127.0.0.1:{own.port}/0 {stream}" in one for one in said)
    assert sum("is back after" in one for one in said) == 1


@pytest.mark.shows("K42", "R07")
def test_a_group_or_stream_that_vanishes_is_made_anew_and_nothing_is_stored_twice(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    client = valkey.client()
    with ingesting(log, source_of(valkey, stream, start="end")) as engine:
        wait_until(lambda: client.exists(stream) == 1)
        add(valkey, stream, 10)
        wait_until(lambda: count_of(engine, "stored") == 10)
        client.xgroup_destroy(stream, "penstock")
        add(valkey, stream, 10, first=10)
        wait_until(lambda: count_of(engine, "stored") == 20)
        client.delete(stream)
        add(valkey, stream, 10, first=20)
        wait_until(lambda: count_of(engine, "stored") == 30)
    assert numbers(log) == [*range(30)]


def test_a_new_source_may_begin_at_the_end(log: penstock.Log, valkey: ValkeyServer, stream: str) -> None:
    add(valkey, stream, 5)
    source = source_of(valkey, stream, start="end")
    assert ingest_until_drained(log, source) == {}
    add(valkey, stream, 5, first=5)
    assert ingest_until_drained(log, source) == {"stored": 5}
    assert numbers(log) == [*range(5, 10)]


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(postgres.port) as one:
        yield one


@pytest.mark.shows("X03", "K42", "R07")
@pytest.mark.parametrize("how", ["before", "after"])
def test_database_connections_cut_at_any_statement_lose_nothing(
    postgres_log: penstock.Log,
    postgres_log_url: str,
    proxy: CuttingProxy,
    valkey: ValkeyServer,
    stream: str,
    how: Cut,
) -> None:
    source = source_of(valkey, stream)
    with penstock.open(proxy.url(postgres_log_url)) as log, ingesting(log, source) as engine:
        for n in range(25):
            proxy.cut_at(n % 13 + 1, how)
            add(valkey, stream, 1, first=n)
            wait_until(lambda: len(numbers(postgres_log)) == n + 1)  # noqa: B023  # within this turn
        assert len(proxy.cuts) > 15 and count_of(engine, "store_errors") > 0
    assert numbers(postgres_log) == [*range(25)] and pending(valkey, stream) == 0


@pytest.mark.shows("X03", "K42")
def test_a_database_that_is_killed_is_waited_for(valkey: ValkeyServer, stream: str) -> None:
    with PostgresServer() as own:
        url = own.create_database()
        with penstock.open(url) as log, ingesting(log, source_of(valkey, stream)) as engine:
            add(valkey, stream, 50)
            wait_until(lambda: count_of(engine, "stored") == 50)
            own.kill()
            add(valkey, stream, 50, first=50)
            wait_until(lambda: count_of(engine, "store_errors") > 0)
            own.start()
            wait_until(lambda: count_of(engine, "stored") + count_of(engine, "known") >= 100)
        with penstock.open(url) as log:
            assert sorted(numbers(log)) == [*range(100)]


@pytest.mark.shows("R09", "R10")
def test_what_penstock_published_becomes_the_same_event(
    make_log: MakeLog, log: penstock.Log, valkey: ValkeyServer, stream: str, tmp_path: Any
) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    with penstock.open(f"sqlite:///{tmp_path}/origin.db") as origin:
        origin.append(
            *("orders", b"\x00\xff"), type="order.created", ordering_key="c-7", event_id=ulid, content_type="image/png",
            headers={"tenant": "eu"}, metadata={"traceparent": parent},
        )  # fmt: skip
        app = penstock.App(name="shop")
        app.publish("orders", group="out", publisher=penstock.connect.Valkey(valkey.url, stream=stream))
        run_local_until_drained(origin, *app.subscriptions)
    valkey.client().execute_command(
        *("XADD", stream, "*", "event_id", str(penstock.event_id("b")), "event_type", "t", "payload", "{}"),
        *("header:a", "1", "header:a", "2", "header:b", b"\xff", "header:penstock-x", "ours"),
    )
    assert ingest_until_drained(log, source_of(valkey, stream)) == {"stored": 2}
    event, other = log.read("clicks")
    assert (event.given_id, event.event_type, event.payload) == (ulid, "order.created", b"\x00\xff")
    assert (event.content_type, event.ordering_key) == ("image/png", "c-7")
    assert dict(event.headers) == {"tenant": "eu", "traceparent": parent}
    assert other.header_pairs == [("a", "1"), ("a", "2"), ("b", b"\xff")] and dict(other.headers) == {"a": "2"}


@pytest.mark.shows("R07")
def test_a_quiet_ingester_reads_nothing_until_it_may(log: penstock.Log, valkey: ValkeyServer, stream: str) -> None:
    client = valkey.client()
    engine = IngestEngine(log, app_with(source_of(valkey, stream)).ingests)
    engine.quiet(True)
    engine.start()
    try:
        wait_until(lambda: client.exists(stream) == 1)
        add(valkey, stream, 3)
        (group,) = client.xinfo_groups(stream)
        assert (group["consumers"], group["lag"]) == (0, 3)
        engine.quiet(False)
        wait_until(lambda: count_of(engine, "stored") == 3)
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS)


def test_ids_are_compared_as_numbers_up_to_the_largest(log: penstock.Log, valkey: ValkeyServer, stream: str) -> None:
    most = 2**64 - 1
    ids = ["1-1", "9-5", "10-0", "10-9", "10-10", f"{2**63}-{2**63}", f"{most}-{most - 1}", f"{most}-{most}"]
    client = valkey.client()
    for n, one in enumerate(ids):
        client.xadd(stream, {"n": n}, id=one)
    source = source_of(valkey, stream)
    assert ingest_until_drained(log, source) == {"stored": 8}
    client.execute_command("XGROUP", "SETID", stream, "penstock", "0")
    assert ingest_until_drained(log, source) == {"known": 8}
    assert numbers(log) == [*range(8)]
