"""The rules of the contract, each a function that sends something and raises `Broken`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from penstock.testing.contract.received import Received
from penstock.testing.contract.trial import Broken, Trial

Rule = Callable[[Trial], None]
MEGABYTE = 1_000_000
_ODD_JSON = b'{ "b":1 ,"a" : 1.50,\t"b": "\\u00e9", "a":[ ] }'
_SECRET = "contract-metadata-6f1b"
_UNSENDABLE = {
    "duplicate headers": (("twice", "one"), ("twice", "two")),
    "bytes in headers": (("raw", b"\xff\xfe\x80"),),
    "text in headers": (("city", "Zürich, 東京"),),
}


def results(trial: Trial) -> None:
    """publish returns None, or a Result for each message, in their order"""
    trial.publish([trial.message() for _ in range(3)])


def once(trial: Trial) -> None:
    """one call is one attempt: every message arrives once"""
    trial.send([trial.message(b"%d" % number) for number in range(100)])


def again(trial: Trial) -> None:
    """a message that is sent again is sent again: the first answer may have been lost"""
    message = trial.message(b'"again"')
    trial.send([message])
    trial.send([message], times=1 if "send twice" in trial.cannot else 2)


def empty(trial: Trial) -> None:
    """an empty payload arrives empty"""
    _same_payload(trial, b"", "application/octet-stream")


def binary(trial: Trial) -> None:
    """a binary payload arrives byte by byte"""
    _same_payload(trial, bytes(range(256)) * 3, "application/octet-stream")


def large(trial: Trial) -> None:
    """a payload of 1 MB arrives whole"""
    _same_payload(trial, os.urandom(MEGABYTE // 4) * 4, "application/octet-stream")


def odd_json(trial: Trial) -> None:
    """JSON keeps its spacing, its duplicate keys and its escapes"""
    for payload in (_ODD_JSON, _ODD_JSON.replace(b",", b",\n"), b'{"broken', '{"é": 1}'.encode("latin-1")):
        _same_payload(trial, payload, "application/json")


def text_headers(trial: Trial) -> None:
    """headers arrive unchanged: their names, their values, text that is not ASCII"""
    _same_headers(trial, [("tenant", "eu"), ("X-Trace.Id_1", "a b;c=d, e"), ("empty", "")])
    _same_headers(trial, _UNSENDABLE["text in headers"], "text in headers")


def duplicate_headers(trial: Trial) -> None:
    """a header that occurs twice arrives twice"""
    _same_headers(trial, _UNSENDABLE["duplicate headers"], "duplicate headers")


def bytes_in_headers(trial: Trial) -> None:
    """a header of bytes arrives byte by byte"""
    _same_headers(trial, _UNSENDABLE["bytes in headers"], "bytes in headers")


def metadata(trial: Trial) -> None:
    """metadata is never sent"""
    (found,) = trial.send([trial.message(metadata={"note": _SECRET, _SECRET: 1})])
    if _SECRET in repr(found) or _SECRET.encode() in found.raw:
        raise Broken(f"the metadata of the event is at the target: {found!r:.300}")


def key(trial: Trial) -> None:
    """the partition key is used"""
    keyed, other = trial.send([trial.message(key="c-42 é"), trial.message()])
    if (keyed.key, other.key) != ("c-42 é", None):
        raise Broken(f"the keys 'c-42 é' and None arrived as {keyed.key!r} and {other.key!r}")


def ids(trial: Trial) -> None:
    """ids are sent as they were given: a ULID stays a ULID"""
    given = [_ulid(), _ulid().lower(), os.urandom(16).hex().upper()]
    trial.send([trial.message(event_id=one) for one in given])


def types(trial: Trial) -> None:
    """the event's type and content type arrive, where the target has a place for them"""
    (found,) = trial.send([trial.message(b"\x01", content_type="image/png")])
    if found.type not in (None, "contract.checked") or found.content_type not in (None, "image/png"):
        raise Broken(f"the type or the content type is another one: {found!r:.300}")


def closing(trial: Trial) -> None:
    """after close() the next call opens new connections; to close twice is no error"""
    close: Callable[[], Any] | None = getattr(trial.publisher, "close", None)
    if close is None:
        return
    trial.send([trial.message()])
    close()
    close()
    trial.send([trial.message()])


def outages(trial: Trial, outage: Callable[[], AbstractContextManager[Any]]) -> None:
    """a target that is down is unavailable, counts against nobody, and is used again when it is back"""
    trial.send([trial.message()])
    lost = [trial.message() for _ in range(3)]
    with outage():
        for result in trial.publish(lost):
            if result.kind != "unavailable":
                raise Broken(f"the target is down, and publish returned {result}")
    for _ in range(2):  # one call may find out that its connection is gone
        if all(one.kind == "ok" for one in trial.publish([trial.message()])):
            break
    trial.send([trial.message()])


def secrets(trial: Trial, hidden: tuple[str, ...]) -> None:
    """no credential is in a result, a log line, the repr, the target or a pickle"""
    shown = [repr(trial.publisher), str(getattr(trial.publisher, "target", "")), *trial.spoken]
    try:
        shown.append(pickle.dumps(trial.publisher).decode("latin-1"))
    except Exception as error:  # what cannot be pickled gives nothing away, unless it says so
        shown.append(str(error))
    for one in shown:
        for secret in hidden:
            if secret in one:
                raise Broken(f"a credential can be read in {one.replace(secret, '***')!r:.200}")


def _same_payload(trial: Trial, payload: bytes, content_type: str) -> None:
    before, middle, after = trial.send(
        [trial.message(), trial.message(payload, content_type=content_type), trial.message(b"[1]")]
    )
    if (before.payload, middle.payload, after.payload) != (b"{}", payload, b"[1]"):
        raise Broken(f"{len(payload)} bytes {payload!r:.60} arrived as {len(middle.payload)} {middle.payload!r:.60}")


def _same_headers(trial: Trial, headers: Any, name: str = "") -> None:
    message = trial.message(headers=headers)
    if name in trial.cannot:
        neighbour = trial.message()
        refused, sent = trial.publish([message, neighbour])
        if refused.kind != "permanent" or sent.kind != "ok" or trial.count(message):
            raise Broken(
                f"a target that cannot carry {name} refuses that message alone, as permanent: {refused}, {sent}"
            )
        trial.arrived([neighbour])
        return
    (found,) = trial.send([message])
    if _pairs(found) != sorted((one.lower(), _raw(value)) for one, value in headers):
        raise Broken(f"the headers {headers!r} arrived as {found.headers!r:.300}")


def _pairs(found: Received) -> list[tuple[str, bytes]]:
    """Return headers to compare them: names without case, as protocols have them, values as bytes."""
    return sorted((name.lower(), _raw(value)) for name, value in found.headers)


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _ulid() -> str:
    return "01" + "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[one % 32] for one in os.urandom(24))
