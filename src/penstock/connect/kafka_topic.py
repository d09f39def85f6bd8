"""`KafkaTopic`: ingest from a topic, from the position that is stored in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from penstock.connect import entry_fields
from penstock.connect.kafka_reader import KafkaReader
from penstock.connect.source_options import (
    check_count,
    check_positive,
    check_source_name,
    check_start,
    check_text_option,
    default_type,
)
from penstock.core import limits
from penstock.core.entry import Entry
from penstock.errors import InvalidSource
from penstock.log.ingest import Ingests


class KafkaTopic:
    """The messages of a topic. Ingesters of the same `group` share its partitions.

    The position in the log decides what is read next; it is stored together with the events. The group's offsets at the
    broker follow, for those who watch them. `start` is where partitions begin that were never read: "beginning" or
    "end". `type` is the type of events whose messages name none; default: `<topic>.entry`. `batch` messages are stored
    in one transaction. `config` is passed on to librdkafka.

    The log knows the topic by its cluster's id, so addresses may change. `name` replaces what it is known by.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        group: str = "penstock",
        start: str = "beginning",
        type: str | None = None,
        name: str | None = None,
        batch: int = limits.INGEST_BATCH,
        timeout_seconds: float = 10.0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.servers = check_text_option(servers, "servers")
        self.topic = check_text_option(topic, "topic")
        if topic.startswith("^"):
            raise InvalidSource("A source is one topic, not a pattern.")
        self.group = check_text_option(group, "group")
        self.start = check_start(start)
        self.batch = check_count(batch, "batch", limits.INGEST_BATCH)
        self.timeout_seconds = check_positive(timeout_seconds, "timeout_seconds", 3_600)
        self.given_name = name = check_source_name(name)
        self.name = name or f"kafka {servers} {topic}/{group}"
        self.type = default_type(type, topic)
        if not isinstance(config, Mapping | None) or not all(isinstance(one, str) for one in config or ()):
            raise InvalidSource("config is a mapping of librdkafka's settings, whose names are text.")
        self._config = dict(config or {})
        if "cooperative" in str(self._config.get("partition.assignment.strategy")):
            raise InvalidSource("Partitions are assigned as a whole: leave out the cooperative strategy.")

    def __repr__(self) -> str:
        return f"<KafkaTopic {self.name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a source may hold a password, and is not pickled: declare it in a module")

    def open(self, ingests: Ingests) -> KafkaReader:
        """Join the group."""
        return KafkaReader(self, self._config, ingests)

    def fields_of(self, entry: Entry) -> Mapping[str, Any]:
        """Return the event of a message."""
        return entry_fields.of_message(entry, self.type)
