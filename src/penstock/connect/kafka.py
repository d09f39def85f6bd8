"""`Kafka`: publish to topics, with an idempotent producer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.connect.per_process import PerProcess
from penstock.connect.target_options import check_driver, check_name, check_seconds
from penstock.declare.publisher import OK, Message, Result
from penstock.errors import InvalidPublisher

Header = tuple[str, str | bytes | None]

_LARGEST = 2_000_000  # bytes of a message: more than a payload and its headers can have, so that the broker decides
_PERMANENT = {"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_RECORD", "RECORD_LIST_TOO_LARGE", "TOPIC_EXCEPTION"}
_TIMED_OUT = {"_MSG_TIMED_OUT", "_TIMED_OUT"}
_REFUSED = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"}
_UNAVAILABLE = {
    "_ALL_BROKERS_DOWN",
    "_DESTROY",
    "_FATAL",
    "_PURGE_INFLIGHT",
    "_PURGE_QUEUE",
    "_RESOLVE",
    "_SSL",
    "_TRANSPORT",
    "BROKER_NOT_AVAILABLE",
    "CLUSTER_AUTHORIZATION_FAILED",
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
        check_driver("confluent_kafka", "kafka")
        if check_name(servers, "servers") is None:
            raise InvalidPublisher("servers names the brokers: host:port, with commas between.")
        timeout_seconds = check_seconds(timeout_seconds)
        self.topic = check_name(topic, "topic")
        self.target = f"kafka {servers}"
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "partitioner": "murmur2_random",  # the same partition for a key as other clients choose
            "message.timeout.ms": int(timeout_seconds * 1000),
            "message.max.bytes": _LARGEST,
            "topic.metadata.propagation.max.ms": int(timeout_seconds * 500),  # an unknown topic is not a dead broker
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 0,
            "log_level": 0,  # what fails is an outcome
        }
        if check_name(transactional_id, "transactional_id") is not None:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = int(timeout_seconds * 1000)
        if config is not None:
            settings |= _checked(config, settings)
        make = partial(_Producer, settings, timeout_seconds, transactional_id is not None)
        self._producer = PerProcess(make, lambda producer: producer.close())

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Send all messages and wait until the brokers have them."""
        from confluent_kafka import KafkaException

        try:
            producer = self._producer.get()
        except KafkaException as error:  # only a producer of transactions speaks to the brokers before it sends
            if error.args[0].name() == "_INVALID_ARG":
                raise InvalidPublisher(f"librdkafka refuses its configuration: {error.args[0].str()}.") from None
            return [_result(error.args[0], None)] * len(messages)
        results = producer.send(messages)
        if producer.broken:
            self._producer.drop(producer)
        return results

    def close(self) -> None:
        """Disconnect."""
        self._producer.drop()


def _checked(config: Any, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that are passed on, if librdkafka takes them; without servers it connects to nobody."""
    from confluent_kafka import KafkaException, Producer

    if not isinstance(config, Mapping):
        raise InvalidPublisher(f"config is a mapping of names to values, not {type(config).__name__}.")
    try:
        Producer({**settings, **config, "bootstrap.servers": ""})
    except KafkaException as error:
        raise InvalidPublisher(f"librdkafka refuses its configuration: {error.args[0].str()}.") from None
    except (TypeError, ValueError) as error:
        raise InvalidPublisher(f"librdkafka cannot read its configuration: {error}.") from None
    return config


class _Producer:
    """A producer that one call uses at a time: only so does it know whose errors it is told."""

    def __init__(self, config: Mapping[str, Any], timeout: float, transactional: bool) -> None:
        from confluent_kafka import Producer

        self._lock = threading.Lock()
        self._timeout = timeout
        self._failed: dict[str, Any] = {}
        self._said: list[Any] = []  # about no message in particular: why messages time out
        self._transactional = transactional
        self.broken = False
        # A callback that knew this object would keep both alive until the garbage collector comes, in a forked child
        # perhaps, where a producer of the parent must not be freed.
        self._producer = Producer({**config, "error_cb": self._said.append})
        if transactional:
            self._producer.init_transactions(timeout)

    def send(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        with self._lock:
            self._said.clear()
            failed = self._send(messages)
            # A transaction that was aborted because of some messages is done again without them: nobody saw it.
            while self._transactional and failed and len(failed) < len(messages) and not self.broken:
                more = self._send([one for one in messages if one.id not in failed])
                failed |= more
                if not more:
                    break
            self.broken = self.broken or any(error.fatal() for error in self._said)
            if not failed:
                return None
            trouble = self._said[-1] if self._said else None
            return [_result(failed.get(message.id), trouble) for message in messages]

    def _send(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Send messages, in a transaction if that is wanted; return the errors of those that failed, by their ids."""
        self._failed = {}
        if self._transactional:
            self._producer.begin_transaction()
        returned: list[tuple[Any, Any]] = []
        self._produce(messages, partial(_note, returned))
        if self._producer.flush(self._timeout + 5):  # the messages time out before
            self._producer.purge()
            self._producer.flush(1)
            self.broken = True
        if returned:
            self._failed |= _failed_of(messages, returned)
        if self._transactional:
            self._end_transaction(messages)
        return self._failed

    def _produce(self, messages: Sequence[Message], note: Callable[[Any, Any], None]) -> None:
        from confluent_kafka import KafkaException

        produce, failed = self._producer.produce, self._failed
        type_ = content_type = None
        for message in messages:
            if message.type != type_ or message.content_type != content_type:
                type_, content_type = message.type, message.content_type
                shared = ("penstock-type", type_), ("penstock-content-type", content_type)
            headers: list[Header] = [("penstock-id", message.id), *shared]
            if message.headers:
                headers += message.headers
            try:
                produce(message.topic, message.payload, message.key, headers=headers, on_delivery=note)
            except BufferError:  # cannot be with an unlimited queue, unless `config` limits it
                self._producer.flush(self._timeout)
                produce(message.topic, message.payload, message.key, headers=headers, on_delivery=note)
            except KafkaException as error:
                failed[message.id] = error.args[0]
            except (TypeError, ValueError) as error:  # a topic or a header with a NUL
                failed[message.id] = Result.permanent("invalid_message", str(error))

    def _end_transaction(self, messages: Sequence[Message]) -> None:
        """Commit; if anything failed, abort. If that cannot be done, all of them have failed."""
        from confluent_kafka import KafkaException

        try:
            if self._failed:
                self._producer.abort_transaction(self._timeout)
            else:
                self._producer.commit_transaction(self._timeout)
        except KafkaException as error:
            self.broken = True  # the next producer of this transactional id ends what this one has begun
            for message in messages:
                self._failed.setdefault(message.id, error.args[0])

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)


def _note(returned: list[tuple[Any, Any]], error: Any, message: Any) -> None:
    """Note a message that failed, and with what."""
    returned.append((message, error))


def _failed_of(messages: Sequence[Message], returned: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Return the errors of messages by their ids. What fails comes back without its headers, so those that are alike in
    all else share an error, and come again together."""
    errors = {(one.topic(), one.key() or b"", one.value() or b""): error for one, error in returned}
    found = ((one.id, (one.topic, (one.key or "").encode(), one.payload)) for one in messages)
    return {message_id: errors[sent] for message_id, sent in found if sent in errors}


def _result(error: Any, trouble: Any) -> Result:
    """Return what became of a message; `trouble` is what was said about a broker meanwhile."""
    if error is None:
        return OK
    if isinstance(error, Result):
        return error
    if error.name() in _TIMED_OUT and trouble is not None:
        error = trouble
    code, text = str(error.name()), str(error.str())
    if code in _PERMANENT:
        return Result.permanent(code.lower(), text)
    if code in _REFUSED:
        return Result.unavailable("refused_credentials", text)
    if code in _UNAVAILABLE or code in _TIMED_OUT or error.fatal():
        return Result.unavailable(code.strip("_").lower(), text)
    return Result.retry(code.strip("_").lower(), text)
