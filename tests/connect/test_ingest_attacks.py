"""Functions and topics that do what nobody expects: no entry is lost, and no source ends because of one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import penstock
from penstock.connect import Entry, KafkaTopic, ValkeyStream
from penstock.engine.ingest.engine import IngestEngine
from tests.connect.test_ingest_kafka import QUICK, send
from tests.connect.test_ingest_valkey import add, pending
from tests.support.ingesting import app_with, ingest_until_drained, ingesting, numbers
from tests.support.kafka_broker import KafkaBroker
from tests.support.raw_sql import raw
from tests.support.valkey_server import ValkeyServer
from tests.support.waiting import wait_until


class _Mute(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Muter(Exception):
    """Another one."""

    @property
    def message(self) -> str:
        raise RuntimeError("no message")


def _raise(error: BaseException) -> None:
    raise error


def _spoil(entry: Entry) -> None:
    entry.fields = None  # type: ignore[assignment]
    raise ValueError("spoilt")


@pytest.mark.shows("R12", "K42")
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(lambda entry: _raise(_Mute()), id="str raises"),
        pytest.param(lambda entry: _raise(_Muter()), id="message raises"),
        pytest.param(lambda entry: sys.exit(3), id="exits"),
        pytest.param(_spoil, id="spoils the entry"),
    ],
)
def test_whatever_a_mapping_raises_rejects_its_entry_alone(
    log: penstock.Log, valkey: ValkeyServer, stream: str, bad: Callable[[Entry], None]
) -> None:
    add(valkey, stream, 3)

    def map(entry: Entry) -> Any:
        n = int(entry.text("n") or "")
        if n == 1:
            bad(entry)
        return {"payload": {"n": n}, "type": "t"}

    engine = IngestEngine(log, app_with(ValkeyStream(valkey.url, stream), map=map).ingests, until_drained=True)
    engine.start()
    try:
        assert engine.wait(20) and engine.paused == {}
    finally:
        engine.stop()
    assert numbers(log) == [0, 2] and pending(valkey, stream) == 0
    (told,) = log.read("clicks.rejected")
    assert told.json()["fields"], "the entry as it came"


@pytest.mark.shows("R07")
def test_a_mapping_that_changes_its_entry_changes_neither_its_id_nor_what_is_acknowledged(
    log: penstock.Log, valkey: ValkeyServer, stream: str
) -> None:
    ids = add(valkey, stream, 3)

    def map(entry: Entry) -> Any:
        with suppress(AttributeError):  # one that cannot be changed is as good
            entry.position = ids[0].decode()
        return {"payload": {}, "type": "t"}

    with ingesting(log, ValkeyStream(valkey.url, stream), map=map):
        wait_until(lambda: len(log.read("clicks")) == 3 and pending(valkey, stream) == 0, "three events", 5)


@pytest.mark.shows("R07")
def test_a_topic_that_was_made_anew_is_stored_after_its_position_was_removed(log: penstock.Log, stream: str) -> None:
    """As the guide says: its messages are others, though their offsets are the same, and their contents may be."""
    for turn in range(2):
        with KafkaBroker() as own:
            own.create_topic(stream)
            send(own, stream, 2, first=turn)
            source = KafkaTopic(own.servers, stream, name="orders", config=QUICK)
            if turn:
                with raw(log.store.url) as sql:
                    sql("delete from penstock.ingest_positions where source = 'orders'")
            assert ingest_until_drained(log, source) == {"stored": 2}
    assert sorted(numbers(log)) == [0, 1, 1, 2]
