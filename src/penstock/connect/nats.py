"""`Nats`: publish to the streams of NATS JetStream."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import orjson

from penstock.connect.address import shown
from penstock.connect.loop_thread import LoopThread
from penstock.connect.per_process import PerProcess
from penstock.connect.target_options import check_driver, check_name, check_path, check_seconds
from penstock.declare.publisher import OK, Message, Result

_SCHEMES = ("nats", "tls", "ws", "wss")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FRAME = 12  # bytes around the headers of a message
_TOO_LARGE = 10_054  # JetStream's code
_DOWN = 503
_ACKNOWLEDGED = b'{"stream":"'  # how the answer of a stream begins
_LONGEST_SUBJECT = 1_000  # characters: a server ends the connection of whoever sends it a longer line than 4,096 bytes


class Nats:
    """Publishes every message to a subject, and waits until the stream behind it has stored it.

    The event's id is the `Nats-Msg-Id`, so that the stream drops a message that comes again within its window. Its
    type, content type and key are the headers `penstock-type`, `penstock-content-type` and `penstock-key`. `url` may
    be several, with commas between; `credentials` is the path of a credentials file.
    """

    batch = 1_000

    def __init__(
        self,
        url: str,
        *,
        subject: str | None = None,
        timeout_seconds: float = 10.0,
        credentials: str | None = None,
    ) -> None:
        check_driver("nats", "nats")
        self.topic = check_name(subject, "subject")
        file = None if credentials is None else check_path(credentials, "credentials")
        urls = str(url).split(",")
        self.target = ",".join(shown(one, _SCHEMES) for one in urls)
        make = partial(_Connection, urls, check_seconds(timeout_seconds), file)
        self._connection = PerProcess(make, lambda connection: connection.close())

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Send all messages, then wait for all answers."""
        try:
            connection = self._connection.get()
        except Exception as error:
            return [_unreachable(error)] * len(messages)
        results = connection.publish(messages)
        if not connection.usable:
            self._connection.drop(connection)
        return None if all(one is OK for one in results) else results

    def close(self) -> None:
        """Disconnect."""
        self._connection.drop()


class _Connection:
    """A connection, and the calls that wait for answers on it."""

    def __init__(self, urls: list[str], timeout: float, credentials: str | None) -> None:
        self._timeout = timeout
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[_Call, int]] = {}
        self._trouble: Exception | None = None
        self._loop = LoopThread("nats")
        try:
            self._loop.run(self._connect(urls, credentials))
        except BaseException:
            self._loop.stop()
            raise

    async def _connect(self, urls: list[str], credentials: str | None) -> None:
        from nats.aio.client import Client
        from nats.errors import NoServersError

        client: Any = Client()
        self._client = client
        try:
            await client.connect(
                urls,
                user_credentials=credentials,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # of the first connection: without it, the client tries for ever
                reconnect_time_wait=0,
                connect_timeout=self._timeout,
                error_cb=self._troubled,
                closed_cb=self._lost,
            )
            self._inbox = f"{self._client.new_inbox()}."
            await self._client.subscribe(f"{self._inbox}*", cb=self._answered)
        except BaseException as error:
            await self._client.close()
            if isinstance(error, NoServersError) and self._trouble is not None:
                raise self._trouble from error
            raise

    async def _troubled(self, error: Exception) -> None:
        """Note what is said about no message in particular; without this the client would print it."""
        self._trouble = error

    @property
    def usable(self) -> bool:
        return bool(self._client.is_connected)

    def publish(self, messages: Sequence[Message]) -> list[Result]:
        return self._loop.run(self._publish(messages))

    async def _publish(self, messages: Sequence[Message]) -> list[Result]:
        call, self._trouble = _Call(len(messages)), None
        sending = asyncio.ensure_future(self._send_all(call, messages))
        while not call.ended.is_set():
            before = call.steps
            try:
                async with asyncio.timeout(self._timeout):
                    await call.ended.wait()
            except TimeoutError:
                if call.steps == before:
                    late = Result.unavailable("timed_out", "The server did not answer in time.")
                    call.give_up(late if self._trouble is None else _unreachable(self._trouble))
        sending.cancel()
        for number in call.numbers:
            self._waiting.pop(number, None)
        return [one or OK for one in call.results]

    async def _send_all(self, call: _Call, messages: Sequence[Message]) -> None:
        """Send without waiting for answers: they come to `_answered`, by the number in their subject."""
        publish, waiting, inbox = self._client.publish, self._waiting, self._inbox
        limit = self._client.max_payload
        for place, message in enumerate(messages):
            number = next(self._numbers)
            try:
                headers = _Headers(message, limit)
                waiting[number] = call, place
                call.numbers.append(number)
                await publish(message.topic, message.payload, f"{inbox}{number}", headers)
            except Exception as error:
                waiting.pop(number, None)
                call.answer(place, _refused(error))
            call.steps += 1

    async def _answered(self, message: Any) -> None:
        found = self._waiting.pop(int(message.subject[len(self._inbox) :]), None)
        if found is not None:
            call, place = found
            call.answer(place, _stored(message))

    async def _lost(self) -> None:
        lost = Result.unavailable("unreachable", "The connection to the server was lost.")
        for call in {id(one): one for one, _ in self._waiting.values()}.values():
            call.give_up(lost)

    def close(self) -> None:
        try:
            self._loop.run(self._client.close())
        finally:
            self._loop.stop()


class _Call:
    """The answers that one call waits for."""

    def __init__(self, count: int) -> None:
        self.results: list[Result | None] = [None] * count
        self.numbers: list[int] = []
        self.steps = 0  # whatever was sent or answered: the time limit counts from the last
        self.ended = asyncio.Event()
        self._left = count

    def answer(self, place: int, result: Result) -> None:
        if self.results[place] is None:
            self.results[place] = result
            self.steps += 1
            self._left -= 1
            if not self._left:
                self.ended.set()

    def give_up(self, result: Result) -> None:
        """End with this result for whatever has no answer."""
        self.results = [one or result for one in self.results]
        self._left = 0
        self.ended.set()


class _Headers:
    """The headers of a message as the client reads them: `items()`, in which a name may occur twice.

    The client would change some values: it strips spaces and replaces line breaks. Those are refused.
    """

    __slots__ = ("_pairs",)

    def __init__(self, message: Message, limit: int) -> None:
        pairs = [
            ("Nats-Msg-Id", message.id),
            ("penstock-type", message.type),
            ("penstock-content-type", _checked("penstock-content-type", message.content_type)),
        ]
        if len(message.topic) > _LONGEST_SUBJECT:
            raise _Unsendable("invalid_message", f"a subject has at most {_LONGEST_SUBJECT:,} characters")
        if message.key is not None:
            pairs.append(("penstock-key", _checked("penstock-key", message.key)))
        for name, value in message.headers:
            if not _NAME.fullmatch(name) or name[:5].lower() == "nats-":
                raise _Unsendable("invalid_header", f"{name!r:.80} cannot be the name of a header")
            pairs.append((name, _checked(name, value)))
        size = len(message.payload)
        if size + 65_536 > limit:  # more than our limits let headers have
            size += _FRAME + sum(len(name) + len(value.encode()) + 4 for name, value in pairs)
            if size > limit:
                raise _Unsendable("message_too_large", f"{size:,} bytes with its headers; the server takes {limit:,}")
        self._pairs = pairs

    def items(self) -> Iterable[tuple[str, str]]:
        return self._pairs


class _Unsendable(ValueError):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def _checked(name: str, value: str | bytes) -> str:
    """Return a value as text, if it arrives as it is."""
    try:
        text = value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        text = "\n"
    if text != text.strip() or "\n" in text or "\r" in text:
        raise _Unsendable("invalid_header", f"the value of {name!r:.80} cannot be sent as a header")
    return text


def _stored(answer: Any) -> Result:
    """Return what the stream answered."""
    data = answer.data
    if not data:
        return Result.retry("no_stream", "No stream takes this subject.")
    if data.startswith(_ACKNOWLEDGED) and b'"error"' not in data:  # the common case
        return OK
    found = _object(data)
    error = found.get("error")  # a stream may have that name
    if isinstance(error, dict):
        return _failed(error)
    if isinstance(found.get("stream"), str) and isinstance(found.get("seq"), int):
        return OK
    # Whoever listens on a subject may answer: that is no word of a stream that it has the message.
    return Result.retry("not_stored", "What answered on this subject is not a stream.")


def _failed(error: dict[str, Any]) -> Result:
    code, text = error.get("err_code"), str(error.get("description"))
    if code == _TOO_LARGE:
        return Result.permanent("message_too_large", text)
    if error.get("code") == _DOWN:
        return Result.unavailable(f"nats_{code}", text)
    return Result.retry(f"nats_{code}", text)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _refused(error: Exception) -> Result:
    """Return why a message was not sent."""
    from nats import errors

    if isinstance(error, _Unsendable):
        return Result.permanent(error.code, str(error))
    if isinstance(error, errors.MaxPayloadError):
        return Result.permanent("message_too_large", str(error))
    if isinstance(error, errors.BadSubjectError | ValueError):
        return Result.permanent("invalid_message", str(error) or type(error).__name__)
    return _unreachable(error)


def _unreachable(error: BaseException) -> Result:
    text = str(error) or type(error).__name__
    refused = any(word in f"{text} {type(error).__name__}".lower() for word in ("authoriz", "permissions"))
    return Result.unavailable("refused_credentials" if refused else "unreachable", text)
