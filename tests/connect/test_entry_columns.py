"""Plain entries that become events all at once are the events that they become one by one."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect import KafkaTopic, ValkeyStream
from penstock.connect.kafka_reader import KafkaReader
from penstock.connect.valkey_reader import ValkeyReader
from penstock.core.event import NewEvent
from penstock.declare.ingest import Ingest
from penstock.declare.source import RawEntries, SourceBatch

PLAIN = [b"event_type", b"type", b"payload", b"key"]
ODD = [b"event_id", b"content_type", b"header:a", b"n", b"", b"\xff", "é".encode()]
BODIES = [b"{}", b'{"n": 1}', b"null", b"1,2", b"[1", b"", b"\x00", b"\xff", b"NaN", b'"x"', b" 1 ", b"9" * 400]
KEYS = [b"a", b"b", b"", b"\x00", b"\xff", "é".encode(), b"k" * 513]
TYPES = [b"order.created", b"x", b"", b"no name", b"\xff", b"t" * 129]
values = st.sampled_from([*BODIES, *KEYS, *TYPES])
# Most entries are plain: an odd one sends the whole batch the other way, and nothing would be compared.
kinds, json_bodies = st.sampled_from(TYPES[:2]), st.sampled_from(BODIES[:3])
plain_pairs = st.tuples(st.sampled_from([b"event_type", b"type"]), kinds, st.just(b"payload"), json_bodies).map(list)
keyed_pairs = st.tuples(plain_pairs, st.sampled_from(KEYS[:3])).map(lambda one: [*one[0], b"key", one[1]])
odd_pairs = st.tuples(plain_pairs | keyed_pairs, st.sampled_from([*PLAIN, *ODD]), values).map(
    lambda one: [*one[0], one[1], one[2]]
)
any_pairs = st.lists(st.tuples(st.sampled_from([*PLAIN, *ODD]), values), min_size=1, max_size=5).map(
    lambda found: [part for pair in found for part in pair]
)
usual_ids = st.tuples(st.integers(1, 2**41), st.integers(0, 3))
entry_ids = st.one_of(usual_ids, usual_ids, usual_ids, st.tuples(*2 * [st.integers(0, 2**64 - 1)]))


class Message(NamedTuple):
    """A message as the client returns it."""

    at: tuple[int, int]
    body: bytes | None
    given_key: bytes | None
    given_headers: list[tuple[str, bytes]] | None = None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def value(self) -> bytes | None:
        return self.body

    def key(self) -> bytes | None:
        return self.given_key

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self.given_headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


messages = st.builds(
    Message,
    st.tuples(st.integers(0, 3), st.integers(0, 2**40)),
    st.sampled_from([None, *BODIES]) | st.sampled_from(BODIES[:3]),
    st.sampled_from([None, *KEYS[:2]]) | st.sampled_from(KEYS),
    st.none() | st.sampled_from([None, None, None, [("traceparent", b"00-1")]]),
)


def as_events(made: Any) -> list[NewEvent]:
    """What the columns say, as events."""
    columns = made.columns
    rows = [row for chunk in columns.chunks(2) for row in chunk]
    return [
        NewEvent(
            columns.stream,
            uuid.UUID(bytes=event_id),
            *(kind, payload, columns.content_type, None, None, None, key),
            None if key is None else columns.buckets[key],
            None,
        )
        for event_id, kind, payload, key in rows
    ]


def check_same(ingest: Ingest, source: str, batch: SourceBatch) -> bool:
    """Compare both ways; whether there were two."""
    made = ingest.made_of(source, batch.entries)
    assert isinstance(batch.entries, RawEntries)
    if made.columns is None:
        return False
    assert as_events(made) == made.events and not made.rejected
    return True


@pytest.mark.shows("R07", "R12")
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(entry_ids, st.one_of(plain_pairs, plain_pairs, keyed_pairs, any_pairs)), min_size=1, max_size=4)
)
def test_entries_of_valkey(found: list[tuple[tuple[int, int], list[bytes]]]) -> None:
    source = ValkeyStream("valkey://localhost", "clicks")
    reader = ValkeyReader.__new__(ValkeyReader)
    reader.source, reader._options, reader._noted, reader._count = "s", source, [], 64
    batch = reader._batch([[b"%d-%d" % at, pairs] for at, pairs in found], 0.0)
    assert batch is not None
    check_same(Ingest(source, "clicks"), "s", batch)


@pytest.mark.shows("R07", "R12")
@settings(max_examples=300, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4))
def test_messages_of_kafka(found: list[Message]) -> None:
    from penstock.connect.entry_columns import of_messages

    source = KafkaTopic("localhost:9", "orders")
    reader = KafkaReader.__new__(KafkaReader)
    reader.source, reader._options, reader._first_ids = "s", source, {part: part << 70 for part in range(4)}
    entries = RawEntries(found, reader._entry, of_messages(reader._first_ids, source.type))
    check_same(Ingest(source, "clicks"), "s", SourceBatch(entries, []))


def test_plain_ones_do_go_the_fast_way() -> None:
    """And so the two above compare something."""
    source = ValkeyStream("valkey://localhost", "clicks")
    reader = ValkeyReader.__new__(ValkeyReader)
    reader.source, reader._options, reader._noted, reader._count = "s", source, [], 64
    found: list[list[bytes]] = [
        [b"type", b"x", b"payload", b"{}"],
        [b"payload", b"{}", b"key", b"a"],
        [b"n", b"1", b"m", b"2"],
    ]
    for pairs in found:
        batch = reader._batch([[b"1-1", pairs]], 0.0)
        assert batch is not None and check_same(Ingest(source, "clicks"), "s", batch), pairs
