"""The first example of the page about publishers, with a real broker."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.testing import Received
from tests.support.doc_pages import DOCS, blocks
from tests.support.kafka_broker import KafkaBroker
from tests.support.running import PYTHONPATH, Running
from tests.support.targets import in_kafka


def test_from_the_outbox_to_kafka_in_ten_lines(tmp_path: Path) -> None:
    first = next(blocks((DOCS / "how-to" / "publishers.md").read_text(encoding="utf-8"))).text
    assert len(first.splitlines()) <= 10
    with KafkaBroker() as broker:
        broker.create_topic("orders")
        code = first.replace("localhost:9092", broker.servers)
        with Running(tmp_path, sys.executable, "-c", code, environment={"PYTHONPATH": PYTHONPATH}) as running:
            assert running.wait() == 0, running.err
        assert "published=1" in running.out
        (found,) = in_kafka(broker, "orders")
    assert found == Received(
        found.id, b'{"id":7,"amount":12.5}', [], "c-42", "order.created", "application/json", found.raw
    )
