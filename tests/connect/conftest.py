"""Servers that tests of connectors share: each test uses streams and topics of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.kafka_broker import KafkaBroker
from tests.support.valkey_server import ValkeyServer

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    """A Valkey server that wants a password."""
    with ValkeyServer("s3cret-word") as server:
        yield server


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def stream() -> str:
    """The name of a stream or topic that no other test uses."""
    return f"clicks-{next(_numbers)}"
