"""librdkafka's mock cluster as a server of its own. It keeps 5 MB a partition, in memory, and loses it when it ends.

It cannot come back on its port: to let it be away for a while, `pause` it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until

_SERVE = """
import sys, threading
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
brokers = producer.list_topics(timeout=30).brokers.values()
with open("address.new", "w") as file:
    file.write(",".join(f"{one.host}:{one.port}" for one in brokers))
import os
os.rename("address.new", "address")
threading.Event().wait()
"""


class KafkaBroker(ServerProcess):
    """Starts on `with`."""

    def command(self) -> Sequence[str]:
        return (sys.executable, "-c", _SERVE)

    def answers(self) -> bool:
        return (self.folder / "address").exists()

    @property
    def servers(self) -> str:
        return (self.folder / "address").read_text()

    def create_topic(self, name: str) -> None:
        """Create a topic of four partitions: the mock does so when it is asked about one."""
        AdminClient({"bootstrap.servers": self.servers, "log_level": 0}).list_topics(name, timeout=30)

    def messages(self, topic: str, count: int) -> list[Any]:
        """Read that many messages of a topic from its beginning, partition by partition."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
        found: list[Any] = []
        wait_until(lambda: len(found) >= count or bool(found.extend(consumer.consume(1_000, 0.2))), f"{count} messages")
        consumer.close()
        return found
