"""The contract kit: it accepts a publisher that keeps the rules, and every rule catches one that does not."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.connect import OK, Message, Result
from penstock.testing import BrokenContract, check_publisher
from penstock.testing.contract import check as kit
from tests.support.json_file import JsonFile

Answer = Sequence[Result] | None


class Honest:
    """A publisher that keeps all rules. It writes to a file."""

    def __init__(self, file: JsonFile) -> None:
        self.file = file
        self.closed = False
        self.down = False

    def publish(self, messages: Sequence[Message]) -> Answer:
        if self.down:
            return [Result.unavailable("down", "for maintenance")] * len(messages)
        for message in messages:
            self.send(message)
        return None

    def send(self, message: Message) -> None:
        self.file.append(message)

    def close(self) -> None:
        self.closed = True


class OneResult(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        super().publish(messages)
        return [OK]


class Words(Honest):
    def publish(self, messages: Sequence[Message]) -> Any:
        super().publish(messages)
        return ["ok"] * len(messages)


class UnknownKind(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        super().publish(messages)
        return [Result("sent")] * len(messages)


class NoCode(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        return [Result("retry")] * len(messages)


class Raises(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        raise ValueError("whatever")


class SendsTwice(Honest):
    def send(self, message: Message) -> None:
        super().send(message)
        super().send(message)


class Forgets(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        return super().publish(messages[:-1])


class Remembers(Honest):
    """Does not send again what it has sent; the target may have lost it."""

    def __init__(self, file: JsonFile) -> None:
        super().__init__(file)
        self._seen: set[str] = set()

    def send(self, message: Message) -> None:
        if message.id not in self._seen:
            super().send(message)
        self._seen.add(message.id)


class NullForEmpty(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, payload=message.payload or b"null")


class AsText(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, payload=message.payload.decode(errors="replace").encode())


class CutsOff(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, payload=message.payload[:65_536])


class ReadsJson(Honest):
    def send(self, message: Message) -> None:
        import json

        if message.content_type != "application/json":
            return super().send(message)
        try:
            return self.file.append(message, payload=json.dumps(json.loads(message.payload)).encode())
        except ValueError:
            return super().send(message)


class AsciiHeaders(Honest):
    def send(self, message: Message) -> None:
        headers = [(k, v.encode("ascii", "replace") if isinstance(v, str) else v) for k, v in message.headers]
        self.file.append(message, headers=headers)


class OneOfEach(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, headers=[*dict(message.headers).items()])


class TextHeaders(Honest):
    def send(self, message: Message) -> None:
        headers = [(k, v if isinstance(v, str) else v.decode(errors="replace")) for k, v in message.headers]
        self.file.append(message, headers=headers)


class TellsMetadata(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, more=message._event.metadata)


class NoKey(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, key=None)


class UniformIds(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, id=str(penstock.core.event.parse_event_id(message.id)))  # type: ignore[attr-defined]


class WrongType(Honest):
    def send(self, message: Message) -> None:
        self.file.append(message, content_type="application/octet-stream")


class SharesACall(Honest):
    """Keeps the messages of its call where another thread finds them."""

    def publish(self, messages: Sequence[Message]) -> Answer:
        self.current = messages
        for _ in range(200):
            os.sched_yield()
        return super().publish(self.current)


class NotAfterAFork(Honest):
    def __init__(self, file: JsonFile) -> None:
        super().__init__(file)
        self._pid = os.getpid()

    def publish(self, messages: Sequence[Message]) -> Answer:
        if os.getpid() != self._pid:
            return [Result.retry("bad_connection", "it is the parent's")] * len(messages)
        return super().publish(messages)


class HangsAfterAFork(NotAfterAFork):
    def publish(self, messages: Sequence[Message]) -> Answer:
        if os.getpid() != self._pid:
            threading.Event().wait()
        return super().publish(messages)


class ClosedForEver(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        if self.closed:
            return [Result.retry("closed", "closed")] * len(messages)
        return super().publish(messages)


class BlamesMessages(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        if self.down:
            return [Result.retry("refused", "connection refused")] * len(messages)
        return super().publish(messages)


class StaysDown(Honest):
    def __init__(self, file: JsonFile) -> None:
        super().__init__(file)
        self._gone = False

    def publish(self, messages: Sequence[Message]) -> Answer:
        self._gone = self._gone or self.down
        return [Result.unavailable("gone", "gone")] * len(messages) if self._gone else super().publish(messages)


class ShowsPassword(Honest):
    target = "valkey://me:s3cr3t@cache"


class LogsPassword(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        logging.getLogger("penstock").warning("connecting with %s", "s3cr3t")
        return super().publish(messages)


class PicklesPassword(Honest):
    def __init__(self, file: JsonFile) -> None:
        super().__init__(file)
        self.url = "valkey://me:s3cr3t@cache"


class ComplainsWithPassword(Honest):
    def publish(self, messages: Sequence[Message]) -> Answer:
        return [Result.unavailable("down", "s3cr3t")] * len(messages) if self.down else super().publish(messages)


class CarriesAllTheSame(Honest):
    """Was said to have no place for bytes, and makes something of them."""

    def send(self, message: Message) -> None:
        self.file.append(message, headers=[(k, v if isinstance(v, str) else repr(v)) for k, v in message.headers])


BREAKS = [
    (OneResult, "a Result for each"),
    (Words, "a Result for each"),
    (UnknownKind, "a Result for each"),
    (NoCode, "a Result for each"),
    (Raises, "a Result for each"),
    (SendsTwice, "one attempt"),
    (Forgets, "one attempt"),
    (Remembers, "sent again"),
    (NullForEmpty, "an empty payload"),
    (AsText, "a binary payload"),
    (CutsOff, "1 MB"),
    (ReadsJson, "JSON keeps"),
    (AsciiHeaders, "headers arrive unchanged"),
    (OneOfEach, "occurs twice"),
    (TextHeaders, "a header of bytes"),
    (TellsMetadata, "metadata"),
    (NoKey, "partition key"),
    (UniformIds, "as they were given"),
    (WrongType, "content type"),
    (SharesACall, "several threads"),
    (NotAfterAFork, "forked child"),
    (HangsAfterAFork, "forked child"),
    (ClosedForEver, "after close()"),
    (BlamesMessages, "unavailable"),
    (StaysDown, "used again"),
    (ShowsPassword, "no credential"),
    (LogsPassword, "no credential"),
    (PicklesPassword, "no credential"),
    (ComplainsWithPassword, "no credential"),
]


def checked(publisher: Honest, **options: Any) -> Any:
    @contextmanager
    def outage() -> Iterator[None]:
        publisher.down = True
        yield
        publisher.down = False

    settings = {"outage": outage, "secrets": ["s3cr3t"], "patience_seconds": 0.1, **options}
    return check_publisher(publisher, publisher.file.received, **settings)


@pytest.fixture
def file(tmp_path: Path) -> JsonFile:
    return JsonFile(tmp_path / "sent")


@pytest.mark.shows("R01")
def test_a_publisher_that_keeps_the_rules_is_accepted_and_the_rules_are_listed(file: JsonFile) -> None:
    report = checked(Honest(file))
    assert len(report.rules) == 19 and "metadata is never sent" in str(report)


@pytest.mark.shows("R01")
@pytest.mark.parametrize(("broken", "rule"), BREAKS, ids=[one.__name__ for one, _ in BREAKS])
def test_every_rule_catches_a_publisher_that_breaks_it(
    file: JsonFile, monkeypatch: pytest.MonkeyPatch, broken: Callable[[JsonFile], Honest], rule: str
) -> None:
    monkeypatch.setattr("penstock.testing.contract.side_by_side._SECONDS", 1.0)
    with pytest.raises(BrokenContract) as caught:
        checked(broken(file))
    assert any(rule in one for one in caught.value.broken), caught.value
    assert rule in str(caught.value)


def test_every_rule_is_broken_by_somebody(file: JsonFile) -> None:
    rules = checked(Honest(file)).rules
    assert [one for one in rules if not any(rule in one for _, rule in BREAKS)] == []


@pytest.mark.shows("R10")
def test_what_a_target_cannot_carry_must_be_refused(file: JsonFile) -> None:
    with pytest.raises(BrokenContract, match="cannot carry bytes in headers refuses that message"):
        checked(CarriesAllTheSame(file), cannot=["bytes in headers"])
    with pytest.raises(penstock.InvalidInput, match="cannot names some of"):
        checked(Honest(file), cannot=["everything"])
    assert "send twice" in kit.CANNOT
