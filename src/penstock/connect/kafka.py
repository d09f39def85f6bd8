"""`Kafka`: publish to topics, with an idempotent producer."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connect.per_process import PerProcess
from penstock.declare.publisher import OK, Message, Result

_PERMANENT = {"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_RECORD", "RECORD_LIST_TOO_LARGE"}
_UNAVAILABLE = {
    "_ALL_BROKERS_DOWN",
    "_AUTHENTICATION",
    "_DESTROY",
    "_FATAL",
    "_MSG_TIMED_OUT",
    "_PURGE_INFLIGHT",
    "_PURGE_QUEUE",
    "_RESOLVE",
    "_SSL",
    "_TIMED_OUT",
    "_TRANSPORT",
    "BROKER_NOT_AVAILABLE",
    "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
}


class Kafka:
    """Sends messages to Kafka: the payload as the value, `key` as the key, headers as they are.

    The event's id, type and content type travel as the headers `penstock-id`, `penstock-type` and
    `penstock-content-type`. With `transactional_id` every call is one transaction: consumers that read committed
    messages see all of its messages or none. `config` is passed on to librdkafka.
    """

    batch = 10_000

    def __init__(
        self,
        servers: str,
        *,
        topic: str | None = None,
        timeout_seconds: float = 10.0,
        transactional_id: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self.target = f"kafka {servers}"
        self._timeout = timeout_seconds
        self._transactional = transactional_id is not None
        self._config: dict[str, Any] = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "partitioner": "murmur2_random",  # the same partition for a key as other clients choose
            "message.timeout.ms": int(timeout_seconds * 1000),
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 0,
            "log_level": 0,  # what fails is an outcome
        }
        if transactional_id is not None:
            self._config["transactional.id"] = transactional_id
            self._config["transaction.timeout.ms"] = int(timeout_seconds * 1000)
        self._config |= config or {}
        self._producer = PerProcess(self._open, lambda producer: producer.close())

    def _open(self) -> _Producer:
        return _Producer(self._config, self._timeout, self._transactional)

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Send all messages and wait until the brokers have them."""
        producer = self._producer.get()
        results = producer.send(messages)
        if producer.broken:
            self._producer.drop(producer)
        return results

    def close(self) -> None:
        """Disconnect."""
        self._producer.drop()


class _Producer:
    """A producer that one call uses at a time: only so does it know whose errors it is told."""

    def __init__(self, config: Mapping[str, Any], timeout: float, transactional: bool) -> None:
        from confluent_kafka import Producer

        self._lock = threading.Lock()
        self._timeout = timeout
        self._failed: dict[int, Any] = {}
        self._transactional = transactional
        self.broken = False
        self._producer = Producer({**config, "error_cb": self._error})
        if transactional:
            self._producer.init_transactions(timeout)

    def _error(self, error: Any) -> None:
        """Note an error that the producer does not recover from; others show in the messages."""
        self.broken = self.broken or bool(error.fatal())

    def send(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        with self._lock:
            self._failed.clear()
            if self._transactional:
                self._producer.begin_transaction()
            for place, message in enumerate(messages):
                self._produce(place, message)
            if self._producer.flush(self._timeout + 5):  # the messages time out before
                self._producer.purge()
                self._producer.flush(1)
                self.broken = True
            if self._transactional:
                self._end_transaction(len(messages))
            if not self._failed:
                return None
            return [self._result(self._failed.get(place)) for place in range(len(messages))]

    def _produce(self, place: int, message: Message) -> None:
        from confluent_kafka import KafkaException

        headers: list[tuple[str, str | bytes | None]] = [
            ("penstock-id", message.id),
            ("penstock-type", message.type),
            ("penstock-content-type", message.content_type),
            *message.headers,
        ]

        def failed(error: Any, _: Any) -> None:
            self._failed[place] = error

        try:
            self._producer.produce(message.topic, message.payload, message.key, headers=headers, on_delivery=failed)
        except KafkaException as error:
            self._failed[place] = error.args[0]
        except BufferError:  # cannot be with an unlimited queue, unless `config` limits it
            self._producer.flush(self._timeout)
            self._producer.produce(message.topic, message.payload, message.key, headers=headers, on_delivery=failed)

    def _end_transaction(self, count: int) -> None:
        """Commit; if anything failed, nothing of it counts."""
        from confluent_kafka import KafkaException

        try:
            if self._failed:
                self._producer.abort_transaction(self._timeout)
            else:
                self._producer.commit_transaction(self._timeout)
                return
            reason = next(iter(self._failed.values()))
        except KafkaException as error:
            reason = error.args[0]
            self.broken = self.broken or reason.fatal() or not reason.txn_requires_abort()
            if not self.broken:
                self._producer.abort_transaction(self._timeout)
        for place in range(count):
            self._failed.setdefault(place, reason)

    @staticmethod
    def _result(error: Any) -> Result:
        if error is None:
            return OK
        code, text = str(error.name()), str(error.str())
        if code in _PERMANENT:
            return Result.permanent(code.lower(), text)
        if code in _UNAVAILABLE or error.fatal():
            return Result.unavailable(code.strip("_").lower(), text)
        return Result.retry(code.strip("_").lower(), text)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)
