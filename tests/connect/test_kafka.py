"""`Kafka` against librdkafka's mock cluster. It creates topics when it is asked about them: none is ever missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

import penstock
from penstock.connect import Kafka
from tests.support.kafka_broker import KafkaBroker
from tests.support.messages import kinds, publish, trial_of
from tests.support.server_process import free_port
from tests.support.targets import in_kafka

OK = ("ok", "")


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.mark.shows("R03")
@pytest.mark.parametrize("transactional", [None, "relay"])
def test_nobody_listens(transactional: str | None) -> None:
    publisher = Kafka(f"127.0.0.1:{free_port()}", topic="orders", timeout_seconds=1, transactional_id=transactional)
    trial = trial_of(publisher)
    found = kinds(publisher, trial.message(), trial.message())
    assert [kind for kind, _ in found] == ["unavailable", "unavailable"]
    publisher.close()


def test_refused_credentials_are_not_of_a_message_and_not_shown(broker: KafkaBroker) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    secret = {"sasl.username": "me", "sasl.password": "s3cr3t"}
    publisher = Kafka(broker.servers, topic="orders", timeout_seconds=2, config={**config, **secret})
    (result,) = publish(publisher, trial_of(publisher).message())
    assert result.kind == "unavailable"
    assert "s3cr3t" not in f"{result} {publisher!r} {publisher.target}"
    publisher.close()


@pytest.mark.parametrize("transactional", [None, "small"])
def test_a_message_too_large_is_permanent_and_its_neighbours_are_sent(
    broker: KafkaBroker, transactional: str | None
) -> None:
    topic = f"large-{transactional}"
    broker.create_topic(topic)
    publisher = Kafka(broker.servers, topic=topic, config={"message.max.bytes": 10_000}, transactional_id=transactional)
    trial = trial_of(publisher)
    messages = [trial.message(), trial.message(b"x" * 20_000), trial.message()]
    assert kinds(publisher, *messages) == [OK, ("permanent", "msg_size_too_large"), OK]
    # The mock shows what was aborted, too: with transactions the neighbours were sent again, in one that was committed.
    times = 1 if transactional is None else 2
    assert Counter(one.id for one in in_kafka(broker, topic)) == {messages[0].id: times, messages[2].id: times}
    publisher.close()


@pytest.mark.shows("R10")
def test_a_message_that_kafka_cannot_carry_is_permanent(broker: KafkaBroker) -> None:
    publisher = Kafka(broker.servers)
    good, bad = trial_of(publisher, "odd-good"), trial_of(publisher, "no\0topic")
    assert kinds(publisher, good.message(), bad.message()) == [OK, ("permanent", "invalid_message")]
    publisher.close()


@pytest.mark.shows("R01")
def test_the_same_key_goes_to_the_partition_that_other_clients_choose(broker: KafkaBroker) -> None:
    from confluent_kafka import Consumer, TopicPartition

    broker.create_topic("keyed")
    publisher = Kafka(broker.servers, topic="keyed")
    trial = trial_of(publisher)
    publish(publisher, *(trial.message(key=f"c-{n % 10}") for n in range(200)))
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "r", "log_level": 0})
    consumer.assign([TopicPartition("keyed", one, 0) for one in range(4)])
    places: dict[bytes, set[int]] = {}
    read = 0
    while read < 200:
        for one in consumer.consume(200, 0.2):
            places.setdefault(one.key(), set()).add(one.partition())
            read += 1
    consumer.close()
    publisher.close()
    assert all(len(one) == 1 for one in places.values()) and len(places) == 10
    assert places[b"c-1"] == {murmur2(b"c-1") % 4}


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's own client chooses a partition."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for at in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF


def test_an_odd_setting_is_refused_by_name() -> None:
    with pytest.raises(penstock.InvalidInput, match=r"no\.such") as caught:
        Kafka("127.0.0.1:9", topic="t", config={"no.such": 1, "sasl.password": "s3cr3t"})
    assert "s3cr3t" not in str(caught.value)
