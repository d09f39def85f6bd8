"""The reader of a Kafka topic: partitions come from the group, positions from the log."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.connect.entry_columns import of_messages
from penstock.connect.entry_fields import text_or_bytes
from penstock.core.entry import Entry, first_id_of
from penstock.core.ingested import Ingested, Move
from penstock.declare.source import RawEntries, SourceBatch
from penstock.errors import InvalidSource, MissingDependency, PositionLost, SourceUnavailable
from penstock.log.ingest import Ingests

if TYPE_CHECKING:
    from penstock.connect.kafka_topic import KafkaTopic

_LINGER_SECONDS = 0.005  # for messages that follow the first of a batch
_LOST = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
_PASSES = ("_MAX_POLL_EXCEEDED",)  # the group gave our partitions away, and gives others back


class KafkaReader:
    """A member of the group."""

    def __init__(self, options: KafkaTopic, config: Mapping[str, Any], ingests: Ingests) -> None:
        self._options = options
        self._ingests = ingests
        self._positions: dict[int, int] = {}  # of the partitions that are ours: read up to there
        self._ends: dict[int, int] = {}  # where a partition had nothing more
        self._first_ids: dict[int, int] = {}  # of the events of a partition: see `first_id_of`
        self._joined = False
        self._trouble: Exception | None = None  # in a callback
        self._brokers_down = False
        self._consumer = self._connect(config)
        try:
            self.source = options.given_name or f"kafka:{self._cluster()}:{options.topic}:{options.group}"
            callbacks = {"on_assign": self._assigned, "on_revoke": self._revoked, "on_lost": self._revoked}
            self._consumer.subscribe([options.topic], **callbacks)
        except BaseException:
            self.close()
            raise

    def _connect(self, config: Mapping[str, Any]) -> Any:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as error:
            needs = "Reading from Kafka needs the package confluent-kafka: pip install penstock[kafka]."
            raise MissingDependency(needs) from error
        settings = {
            "log_level": 0,  # what fails is said by the ingester
            "partition.assignment.strategy": "range,roundrobin",
            **config,
            "bootstrap.servers": self._options.servers,
            "group.id": self._options.group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",  # nobody decides for us where to read
            "error_cb": self._error,
        }
        try:
            return Consumer(settings)
        except KafkaException as error:
            raise InvalidSource(f"{self._options.name}: {error.args[0].str()}") from None

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Whatever the brokers or the network do is a `SourceUnavailable`."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise SourceUnavailable(f"{self._options.name}: {error.args[0].str()}") from error

    def _cluster(self) -> str:
        """Return the id of the cluster; `SourceUnavailable` if it does not answer, or has no such topic."""
        with self._asking():
            found = self._consumer.list_topics(self._options.topic, timeout=self._options.timeout_seconds)
        topic = found.topics[self._options.topic]
        if topic.error is not None:
            raise SourceUnavailable(f"{self._options.name}: {topic.error.str()}")
        return found.cluster_id or self._options.servers

    def _error(self, error: Any) -> None:
        """Note that no broker can be reached; librdkafka goes on trying by itself."""
        self._brokers_down = self._brokers_down or error.name() == "_ALL_BROKERS_DOWN" or bool(error.fatal())

    # --- partitions ----------------------------------------------------------------------------------------------

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        """Read the partitions that the group gives us from where the log is."""
        try:
            self._place([one.partition for one in partitions])
            self._joined = True
        except Exception as error:  # librdkafka would not know what to do with it
            self._trouble = error
            self._positions.clear()
            consumer.assign([])

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._joined = False
        for one in partitions:
            self._positions.pop(one.partition, None)
            self._ends.pop(one.partition, None)

    def _place(self, numbers: Sequence[int]) -> None:
        """Begin to read these partitions, and no others, at their stored positions."""
        from confluent_kafka import TopicPartition

        self._positions.clear()
        self._ends.clear()
        bounds = {number: self._bounds(number) for number in numbers}
        stored = self._ingests.positions(self.source)
        end = self._options.start == "end"
        new = {str(number): bounds[number][end] for number in numbers if str(number) not in stored}
        if new:
            stored = self._ingests.begin(self.source, new)
        for number, (low, high) in bounds.items():
            position = stored[str(number)]
            if not low <= position <= high:
                raise PositionLost(
                    f"{self._options.name}: partition {number} is to be read from {position}, and has {low} to {high}."
                )
        self._positions = {number: stored[str(number)] for number in numbers}
        topic = self._options.topic
        # With the time: a topic that was made anew has other messages with the same offsets.
        began = self._ingests.beginnings(self.source)
        for number in numbers:
            if str(number) not in began:
                raise SourceUnavailable(f"{self._options.name}: the position of partition {number} was just removed.")
            part = f"{topic}/{number}@{began[str(number)].isoformat()}"
            self._first_ids[number] = first_id_of(self.source, part)
        with self._asking():
            self._consumer.assign([TopicPartition(topic, one, at) for one, at in self._positions.items()])

    def _bounds(self, number: int) -> tuple[int, int]:
        """Return the first position of a partition, and the one behind its last."""
        from confluent_kafka import TopicPartition

        timeout = self._options.timeout_seconds
        with self._asking():
            found = self._consumer.get_watermark_offsets(TopicPartition(self._options.topic, number), timeout=timeout)
        if found is None:
            raise SourceUnavailable(f"{self._options.name}: partition {number} does not answer.")
        return int(found[0]), int(found[1])

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, seconds: float) -> SourceBatch | None:
        """Return messages of our partitions, and how far they bring each of them."""
        with self._asking():
            first = self._consumer.poll(seconds)
            more = self._consumer.consume(self._options.batch - 1, _LINGER_SECONDS) if first is not None else []
        self._check_trouble()
        if first is None:
            return None
        messages: list[Any] = []
        reached = {**self._positions}
        for message in (first, *more):
            number, offset = message.partition(), message.offset()
            if message.error() is not None:
                self._heard(message.error(), number, offset, reached)
            elif offset >= reached.get(number, offset + 1):  # of a partition that is ours
                messages.append(message)
                reached[number] = offset + 1
        positions = self._positions
        moves = [Move(str(one), positions[one], at) for one, at in reached.items() if at > positions.get(one, at)]
        if not moves:
            return None
        for move in moves:
            self._positions[int(move.part)] = move.position
            if self._ends.get(int(move.part), move.position) != move.position:
                del self._ends[int(move.part)]
        columns = of_messages({**self._first_ids}, self._options.type)
        return SourceBatch(RawEntries(messages, self._entry, columns), moves)

    def _entry(self, message: Any) -> Entry:
        number, offset = message.partition(), message.offset()
        headers: Sequence[tuple[str, str | bytes]] = ()
        error = None
        try:
            headers = tuple((name, text_or_bytes(value)) for name, value in message.headers() or ())
        except UnicodeDecodeError as failed:  # names are bytes to the broker
            error = failed
        return Entry(
            f"{message.topic()}/{number}:{offset}",
            message.key(),
            message.value(),
            headers,
            timestamp=_time(*message.timestamp()),
            error=error,
            event_id=uuid.UUID(int=self._first_ids[number] + offset),
        )

    def _check_trouble(self) -> None:
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        if self._brokers_down:
            self._brokers_down = False
            self._cluster()  # it may have been an idle connection

    def _heard(self, error: Any, number: int, offset: int, reached: dict[int, int]) -> None:
        """Follow what the consumer says instead of a message."""
        name = error.name()
        if name == "_PARTITION_EOF":
            if number in self._positions:
                self._ends[number] = offset
                if offset > reached.get(number, self._positions[number]):
                    reached[number] = offset  # what is between was compacted, or is a transaction's own
        elif name in _LOST:
            self._place([*self._positions])  # says what is lost
        elif name not in _PASSES:
            raise SourceUnavailable(f"{self._options.name}: {error.str()}")

    # --- after the commit ----------------------------------------------------------------------------------------

    def acknowledge(self, batch: SourceBatch, ingested: Ingested) -> None:
        """Let the group's offsets follow; the log does not need them."""
        from confluent_kafka import KafkaException, TopicPartition

        assert isinstance(batch.mark, Sequence)
        topic = self._options.topic
        with suppress(KafkaException):
            offsets = [TopicPartition(topic, int(move.part), move.position) for move in batch.mark]
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def overtaken(self, batch: SourceBatch) -> None:
        """Read on from where the log is."""
        self._place([*self._positions])

    def rest(self, idle: bool) -> None:
        """Nothing to do: positions are single rows."""

    def drained(self) -> bool:
        """Whether every partition of ours had nothing more when it was last heard of."""
        return self._joined and all(one in self._ends for one in self._positions)

    def close(self) -> None:
        """Leave the group; with no broker left, librdkafka may wait for one without end, and is left to it."""
        leaving = threading.Thread(target=_leave, args=(self._consumer,), name="penstock-kafka-leave", daemon=True)
        leaving.start()
        leaving.join(self._options.timeout_seconds)


def _leave(consumer: Any) -> None:
    with suppress(Exception):  # nobody is left to tell
        consumer.close()


def _time(kind: int, ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC) if kind else None
    except (ValueError, OverflowError, OSError):  # whatever a producer wrote there
        return None
