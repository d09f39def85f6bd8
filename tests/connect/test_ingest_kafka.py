"""Ingest from Kafka: the position is the log's, and it moves with the events."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import penstock
from penstock.connect import Entry, KafkaTopic
from penstock.core.event import new_event
from penstock.core.ingested import Made, Move
from penstock.engine.ingest.engine import IngestEngine
from penstock.log.ingest import Overtaken
from tests.support.children.killed_ingester import STEPS
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.ingesting import app_with, count_of, ingest_until_drained, ingesting, numbers
from tests.support.kafka_broker import KafkaBroker
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.logs import MakeLog
from tests.support.postgres_server import PostgresServer
from tests.support.raw_sql import raw
from tests.support.running import PYTHONPATH, Running
from tests.support.waiting import wait_until

AT_ONCE = 4  # processes
QUICK = {"heartbeat.interval.ms": 200, "session.timeout.ms": 6_000}


def source_of(kafka: KafkaBroker, topic: str, **options: Any) -> KafkaTopic:
    """A source with a group of its own: members that a test leaves behind keep others of a group waiting."""
    return KafkaTopic(kafka.servers, topic, **{"config": QUICK, "group": topic, **options})


def send(kafka: KafkaBroker, topic: str, count: int, first: int = 0) -> None:
    """Send messages with n = first, first + 1, …; four keys in turn."""
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0, "linger.ms": 1})
    for n in range(first, first + count):
        producer.produce(topic, f'{{"n":{n}}}', f"k{n % 4}")
    assert producer.flush(30) == 0


def send_one(kafka: KafkaBroker, topic: str, value: Any, key: Any = None, headers: Any = None) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0, "message.max.bytes": 10_000_000})
    producer.produce(topic, value, key, headers=headers, partition=0)
    assert producer.flush(30) == 0


def committed(kafka: KafkaBroker, topic: str) -> int:
    """How far the group's offsets at the broker are, over all partitions."""
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": topic, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in range(4)], timeout=30)
    finally:
        consumer.close()
    return sum(max(0, one.offset) for one in found)


def positions(log: penstock.Log) -> dict[str, int]:
    with raw(log.store.url) as sql:
        return dict(sql("select part, position from penstock.ingest_positions"))  # type: ignore[arg-type]


@pytest.mark.shows("R07")
@pytest.mark.clause("003-10")
def test_messages_become_events_and_the_position_is_the_logs(
    log: penstock.Log, kafka: KafkaBroker, stream: str
) -> None:
    kafka.create_topic(stream)
    send(kafka, stream, 1_000)
    source = source_of(kafka, stream, name=stream)
    assert ingest_until_drained(log, source) == {"stored": 1_000}
    found = log.read("clicks", limit=2_000)
    assert sorted(numbers(log)) == [*range(1_000)]
    for key in ("k0", "k1", "k2", "k3"):
        ordered = [event.json()["n"] for event in found if event.ordering_key == key]
        assert ordered == sorted(ordered)
    assert {(event.event_type, event.content_type) for event in found} == {(f"{stream}.entry", "application/json")}
    assert sum(positions(log).values()) == 1_000 == committed(kafka, stream)
    send(kafka, stream, 10, first=1_000)
    strangers = source_of(
        kafka, stream, group=f"{stream}-strangers", name=stream
    )  # whose offsets at the broker are nowhere
    assert ingest_until_drained(log, strangers) == {"stored": 10}


@pytest.mark.shows("R08", "R12", "R09", "R10")
def test_what_becomes_of_messages_of_every_kind(
    log: penstock.Log, kafka: KafkaBroker, stream: str, tmp_path: Path
) -> None:
    kafka.create_topic(stream)
    nested = {"a": [1, None, True, {"b": "ü"}]}
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    large = json.dumps({"large": "x" * 1_000_000})
    pairs = [("a", b"1"), ("a", b"2"), ("b", b"\xff"), ("traceparent", parent.encode()), ("penstock-x", b"ours")]
    send_one(kafka, stream, json.dumps(nested), "k", pairs)
    send_one(kafka, stream, b"\x00\xff", b"\x00\xfe", [("Content-Type", b"image/png"), ("none", None)])
    send_one(kafka, stream, None, "deleted")
    send_one(kafka, stream, b"")
    send_one(kafka, stream, large)
    send_one(kafka, stream, b"x" * (1024 * 1024 + 1), "too large")
    send_one(kafka, stream, b"{}", "k" * 513)
    send_one(kafka, stream, b"{}", headers=[("h", b"x" * 9_000)])
    send_one(kafka, stream, b"{}", headers=[("penstock-type", b"no name")])
    with penstock.open(f"sqlite:///{tmp_path}/origin.db") as origin:
        origin.append("orders", b"\x01", type="o", ordering_key="c", event_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
        app = penstock.App(name="shop")
        app.publish("orders", group="out", publisher=penstock.connect.Kafka(kafka.servers, topic=stream))
        run_local_until_drained(origin, *app.subscriptions)

    assert ingest_until_drained(log, source_of(kafka, stream)) == {"stored": 6, "rejected": 4}
    ours = next(event for event in log.read("clicks") if event.event_type == "o")
    assert (ours.given_id, ours.payload, ours.ordering_key) == ("01ARZ3NDEKTSV4RRFFQ69G5FAV", b"\x01", "c")
    first, binary, tombstone, empty, big = (event for event in log.read("clicks") if event.event_type != "o")
    assert (first.json(), first.ordering_key) == (nested, "k")
    assert dict(first.headers) == {"a": "2", "traceparent": parent}
    assert first.header_pairs == [("a", "1"), ("a", "2"), ("b", b"\xff"), ("traceparent", parent)]
    assert (binary.payload, binary.content_type) == (b"\x00\xff", "image/png")
    assert (binary.ordering_key, binary.metadata["key_encoding"]) == ("AP4=", "base64")
    assert (tombstone.json(), tombstone.ordering_key) == (None, "deleted")
    assert (empty.payload, empty.content_type) == (b"", "application/octet-stream")
    assert big.payload == large.encode()
    rejected = [event.json() for event in log.read("clicks.rejected")]
    assert [one["code"] for one in rejected] == ["too_large", "too_large", "too_large", "invalid_name"]
    assert [one["position"] for one in rejected] == [f"{stream}/0:{n}" for n in (5, 6, 7, 8)]


@pytest.mark.shows("R12")
def test_a_mapping_gets_the_message(log: penstock.Log, kafka: KafkaBroker, stream: str) -> None:
    kafka.create_topic(stream)
    send(kafka, stream, 8)

    def by_hand(entry: Entry) -> Any:
        n = entry.json()["n"]
        assert entry.timestamp is not None and entry.key == f"k{n % 4}".encode()
        return {"payload": {"n": n * 10}, "type": "click"} if n % 2 else None

    assert ingest_until_drained(log, source_of(kafka, stream), map=by_hand) == {"stored": 4, "dropped": 4}
    assert sorted(numbers(log)) == [10, 30, 50, 70]


@pytest.mark.shows("R07", "X02")
@pytest.mark.clause("003-11")
@pytest.mark.timeout(300)
def test_an_ingester_killed_at_any_step_loses_nothing_and_stores_nothing_twice(
    make_log: MakeLog, log_url: str, kafka: KafkaBroker, stream: str, tmp_path: Path
) -> None:
    """One ingester and topic for each step. A new group name does not wait for the dead: the log knows the topic."""
    log = make_log()
    for first in range(0, len(STEPS), AT_ONCE):
        with ExitStack() as running:
            children = []
            for place, step in [*enumerate(STEPS)][first : first + AT_ONCE]:
                topic = f"{stream}-{place}"
                kafka.create_topic(topic)
                send(kafka, topic, 50)
                (tmp_path / topic).mkdir()
                command = (sys.executable, "-m", "tests.support.children.killed_ingester", log_url, kafka.servers)
                child = Running(
                    *(tmp_path / topic, *command, topic, f"{topic}-first", *step),
                    environment={"PYTHONPATH": PYTHONPATH},
                )
                children.append(running.enter_context(child))
            assert [child.wait() for child in children] == [-9] * len(children)
    app = penstock.App(name="shop")
    for place in range(len(STEPS)):
        topic = f"{stream}-{place}"
        app.ingest(source_of(kafka, topic, group=f"{topic}-second", name=topic), into=topic)
    engine = IngestEngine(log, app.ingests, until_drained=True)
    engine.start()
    assert engine.wait(PATIENCE_SECONDS) and not engine.paused
    for place, step in enumerate(STEPS):
        assert sorted(numbers(log, f"{stream}-{place}")) == [*range(50)], f"killed {step}"


@pytest.mark.shows("R07", "R11")
def test_positions_are_compared_and_set(log: penstock.Log) -> None:
    event = new_event("clicks", {}, type="t", event_id=penstock.event_id("a"))
    made = Made(1, lambda place: event, lambda place, error: event)
    assert log.ingests.begin("s", {"0": 5, "1": 0}) == {"0": 5, "1": 0}
    assert log.ingests.begin("s", {"0": 7}) == {"0": 5, "1": 0}
    with pytest.raises(Overtaken):
        log.ingests.store_moves("s", [Move("1", 0, 3), Move("0", 4, 6)], made)
    assert log.ingests.positions("s") == {"0": 5, "1": 0} and log.read("clicks") == []
    assert log.ingests.store_moves("s", [Move("1", 0, 3), Move("0", 5, 6)], made).stored == 1
    assert log.ingests.positions("s") == {"0": 6, "1": 3} and log.ingests.positions("other") == {}


@pytest.mark.shows("R11")
def test_whoever_is_overtaken_goes_on_where_the_log_is(log: penstock.Log, kafka: KafkaBroker, stream: str) -> None:
    """Two readers of the same partitions, as after a pause: the second one to commit stores nothing."""
    kafka.create_topic(stream)
    send(kafka, stream, 100)
    one, other = (source_of(kafka, stream, group=group, name="same") for group in (stream, f"{stream}-b"))
    with ingesting(log, one) as engine:
        wait_until(lambda: count_of(engine, "stored") == 100)
        with raw(log.store.url) as sql:  # as if somebody had gone on, and the reader does not know
            sql("update penstock.ingest_positions set position = position - 1 where position > 0")
        send(kafka, stream, 4, first=100)
        wait_until(lambda: len(numbers(log)) == 104)
        assert count_of(engine, "overtaken") > 0 and count_of(engine, "known") > 0
    assert Counter(numbers(log)) == Counter(range(104))
    assert ingest_until_drained(log, other) == {}


@pytest.mark.shows("R07")
def test_partitions_are_shared_by_live_ingesters_and_none_is_read_twice(
    make_log: MakeLog, kafka: KafkaBroker, stream: str
) -> None:
    kafka.create_topic(stream)
    first, second = make_log(), make_log()
    with ingesting(first, source_of(kafka, stream)) as one:
        send(kafka, stream, 100)
        wait_until(lambda: count_of(one, "stored") == 100)
        with ingesting(second, source_of(kafka, stream)) as other:
            sent = 100
            while not count_of(other, "stored"):
                send(kafka, stream, 40, first=sent)
                sent += 40
                wait_until(lambda: len(numbers(first)) >= sent)  # noqa: B023  # within this turn
        send(kafka, stream, 40, first=sent)  # the other has left
        wait_until(lambda: len(numbers(first)) >= sent + 40)
    assert Counter(numbers(first)) == Counter(range(sent + 40))


@pytest.mark.shows("R07")
def test_a_position_that_the_broker_does_not_have_stops_this_source_alone(
    log: penstock.Log, kafka: KafkaBroker, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost, whole = f"{stream}-lost", f"{stream}-whole"
    for topic in (lost, whole):
        kafka.create_topic(topic)
        send(kafka, topic, 4)
    log.ingests.begin("lost", {"0": 99_999})
    app = app_with(source_of(kafka, lost, name="lost"), "lost")
    app.ingest(source_of(kafka, whole), into="whole")
    engine = IngestEngine(log, app.ingests)
    engine.start()
    try:
        wait_until(lambda: bool(engine.paused))
        wait_until(lambda: len(numbers(log, "whole")) == 4)
        assert not engine.wait(0)
        ((name, why),) = engine.paused.items()
        assert name == "lost > lost" and "[position_lost]" in why and "99999" in why and "ingest_positions" in why
        assert any("is not read any more" in record.getMessage() for record in caplog.records)
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS)
    assert log.read("lost") == []


@pytest.mark.shows("K42")
def test_a_broker_that_is_away_is_waited_for(log: penstock.Log, stream: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    impatient = {**QUICK, "socket.timeout.ms": 1_000}
    with KafkaBroker() as own:
        own.create_topic(stream)
        send(own, stream, 10)
        own.pause()
        servers = own.servers
        source = source_of(own, stream, timeout_seconds=0.5, config=impatient)
        with ingesting(log, source) as engine:
            wait_until(lambda: count_of(engine, "source_errors") > 0)
            own.resume()
            wait_until(lambda: count_of(engine, "stored") == 10)
            own.kill()
            before = count_of(engine, "source_errors")
            wait_until(lambda: count_of(engine, "source_errors") > before)
    said = [record.getMessage() for record in caplog.records]
    assert any(f"waiting for kafka {servers} {stream}/{stream}" in one for one in said)
    assert sum("is back after" in one for one in said) == 1


@pytest.mark.shows("X03", "K42", "R07")
@pytest.mark.parametrize("how", ["before", "after"])
def test_database_connections_cut_at_any_statement_lose_nothing(
    postgres: PostgresServer,
    postgres_log: penstock.Log,
    postgres_log_url: str,
    kafka: KafkaBroker,
    stream: str,
    how: Cut,
) -> None:
    kafka.create_topic(stream)
    with (
        CuttingProxy(postgres.port) as proxy,
        penstock.open(proxy.url(postgres_log_url)) as log,
        ingesting(log, source_of(kafka, stream)) as engine,
    ):
        send(kafka, stream, 1)
        wait_until(lambda: len(numbers(postgres_log)) == 1)
        for n in range(1, 20):
            proxy.cut_at(n % 8 + 1, how)
            send(kafka, stream, 1, first=n)
            wait_until(lambda: len(numbers(postgres_log)) == n + 1)  # noqa: B023  # within this turn
        assert count_of(engine, "store_errors") > 5
    assert Counter(numbers(postgres_log)) == Counter(range(20))


def test_a_new_topic_may_begin_at_the_end_which_is_kept(log: penstock.Log, kafka: KafkaBroker, stream: str) -> None:
    kafka.create_topic(stream)
    send(kafka, stream, 5)
    source = source_of(kafka, stream, start="end")
    assert ingest_until_drained(log, source) == {}
    send(kafka, stream, 5, first=5)
    assert ingest_until_drained(log, source_of(kafka, stream, start="end")) == {"stored": 5}
    assert sorted(numbers(log)) == [*range(5, 10)]
