"""Other systems: publishers, sources, and the log over HTTP. Names are imported when they are first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.connect import http
    from penstock.connect.callable import Callable
    from penstock.connect.files import Files
    from penstock.connect.json_lines import JsonLines
    from penstock.connect.kafka import Kafka
    from penstock.connect.kafka_topic import KafkaTopic
    from penstock.connect.nats import Nats
    from penstock.connect.valkey import Valkey
    from penstock.connect.valkey_stream import ValkeyStream
    from penstock.connect.webhook.publisher import Webhook
    from penstock.connect.webhook.signature import verify as verify_webhook
    from penstock.core.entry import Entry
    from penstock.declare.publisher import OK, Message, Publisher, Result

__all__ = [
    "OK",
    "Callable",
    "Entry",
    "Files",
    "JsonLines",
    "Kafka",
    "KafkaTopic",
    "Message",
    "Nats",
    "Publisher",
    "Result",
    "Valkey",
    "ValkeyStream",
    "Webhook",
    "http",
    "verify_webhook",
]

_MODULES = {
    "OK": "penstock.declare.publisher",
    "Callable": "penstock.connect.callable",
    "Entry": "penstock.core.entry",
    "Files": "penstock.connect.files",
    "JsonLines": "penstock.connect.json_lines",
    "Kafka": "penstock.connect.kafka",
    "KafkaTopic": "penstock.connect.kafka_topic",
    "Message": "penstock.declare.publisher",
    "Nats": "penstock.connect.nats",
    "Publisher": "penstock.declare.publisher",
    "Result": "penstock.declare.publisher",
    "Valkey": "penstock.connect.valkey",
    "ValkeyStream": "penstock.connect.valkey_stream",
    "Webhook": "penstock.connect.webhook.publisher",
}


def __getattr__(name: str) -> Any:
    if name == "http":
        return import_module(f"{__name__}.http")
    if name == "verify_webhook":
        return import_module("penstock.connect.webhook.signature").verify
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
