"""An ingester of a Kafka topic that kills itself with SIGKILL at a named step.

`python -m tests.support.children.killed_ingester URL SERVERS TOPIC GROUP WHEN BLOCK`: a step is a statement of the log,
before or after it ran, or a call of the consumer (`poll`, `acknowledge`). The block `commit` is that of a batch.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import penstock
from penstock.connect import KafkaTopic
from penstock.connect.kafka_reader import KafkaReader
from tests.support.ingesting import ingest_until_drained

STEPS = [
    *[("before", "ingest.begin"), ("after", "ingest.begin"), ("after", "read"), ("before", "ingest.move")],
    *[("after", "ingest.move"), ("before", "append"), ("after", "append"), ("before", "commit"), ("after", "commit")],
    *[("before", "acknowledge"), ("after", "acknowledge")],
]


class Kill:
    """A hook that kills its own process."""

    def __init__(self, when: str, block: str) -> None:
        self.step = when, block
        self.moved = False

    def __call__(self, when: str, block: str) -> None:
        self.moved = self.moved or block == "ingest.move"
        if (when, block) == self.step and (self.moved or block != "commit"):
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    url, servers, topic, group, when, block = sys.argv[1:]
    kill = Kill(when, block)
    read, acknowledge = KafkaReader.read, KafkaReader.acknowledge

    def killed_read(self: KafkaReader, seconds: float) -> Any:
        batch = read(self, seconds)
        if batch is not None:
            kill("after", "read")
        return batch

    def killed_acknowledge(self: KafkaReader, *arguments: Any) -> None:
        kill("before", "acknowledge")
        acknowledge(self, *arguments)
        kill("after", "acknowledge")

    KafkaReader.read, KafkaReader.acknowledge = killed_read, killed_acknowledge  # type: ignore[method-assign]
    with penstock.open(url, hook=kill) as log:
        ingest_until_drained(log, KafkaTopic(servers, topic, group=group, name=topic, batch=20), into=topic)


if __name__ == "__main__":
    main()
