"""`Nats`: publish to the streams of NATS JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock.connect.loop_thread import LoopThread
from penstock.connect.per_process import PerProcess
from penstock.core.urls import without_password
from penstock.declare.publisher import OK, Message, Result

_TOO_LARGE = 10_054  # JetStream's code


class Nats:
    """Publishes every message to a subject, and waits until the stream behind it has stored it.

    The event's id is the `Nats-Msg-Id`, so that the stream drops a message that comes again within its window. Its type
    and content type are the headers `penstock-type` and `penstock-content-type`.
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
        self.topic = subject
        self.target = without_password(url)
        self._url = url
        self._credentials = credentials
        self._timeout = timeout_seconds
        self._connection = PerProcess(self._open, lambda connection: connection.close())

    def _open(self) -> _Connection:
        return _Connection(self._url, self._timeout, self._credentials)

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
    def __init__(self, url: str, timeout: float, credentials: str | None) -> None:
        self._timeout = timeout
        self._loop = LoopThread("nats")
        try:
            self._client, self._stream = self._loop.run(self._connect(url, credentials))
        except BaseException:
            self._loop.stop()
            raise

    async def _connect(self, url: str, credentials: str | None) -> tuple[Any, Any]:
        import nats

        async def hush(_: Exception) -> None:
            """What fails is an outcome: the client would print it."""

        client = await nats.connect(
            url,
            user_credentials=credentials,
            allow_reconnect=False,
            connect_timeout=self._timeout,
            error_cb=hush,
        )
        return client, client.jetstream(timeout=self._timeout, publish_async_max_pending=100_000)

    @property
    def usable(self) -> bool:
        return bool(self._client.is_connected)

    def publish(self, messages: Sequence[Message]) -> list[Result]:
        return self._loop.run(self._publish(messages))

    async def _publish(self, messages: Sequence[Message]) -> list[Result]:
        answers = []
        for message in messages:
            try:
                answers.append(await self._send(message))
            except Exception as error:
                refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                refused.set_exception(error)
                answers.append(refused)
        await asyncio.wait(answers, timeout=self._timeout)
        return [_result(one) for one in answers]

    async def _send(self, message: Message) -> asyncio.Future[Any]:
        headers = {
            "Nats-Msg-Id": message.id,
            "penstock-type": message.type,
            "penstock-content-type": message.content_type,
        }
        for name, value in message.headers:
            headers[name] = value if isinstance(value, str) else value.decode()
        sent: asyncio.Future[Any] = await self._stream.publish_async(message.topic, message.payload, headers=headers)
        return sent

    def close(self) -> None:
        async def close() -> None:
            await self._client.close()

        self._loop.run(close())
        self._loop.stop()


def _result(answer: asyncio.Future[Any]) -> Result:
    if not answer.done():
        answer.cancel()
        return Result.unavailable("timed_out", "The stream did not answer in time.")
    error = answer.exception()
    if error is None:
        return OK
    from nats import errors
    from nats.js import errors as js

    text = str(error) or type(error).__name__
    if isinstance(error, errors.MaxPayloadError) or getattr(error, "err_code", None) == _TOO_LARGE:
        return Result.permanent("message_too_large", text)
    if isinstance(error, js.NoStreamResponseError):
        return Result.retry("no_stream", f"No stream takes this subject: {text}")
    if isinstance(error, errors.BadSubjectError | ValueError):
        return Result.permanent("invalid_message", text)
    if isinstance(error, js.APIError):
        return Result.retry(f"nats_{getattr(error, 'err_code', None) or error.code}", text)
    return _unreachable(error)


def _unreachable(error: BaseException) -> Result:
    text = str(error) or type(error).__name__
    refused = "uthoriz" in text or "uthoriz" in type(error).__name__
    return Result.unavailable("refused_credentials" if refused else "unreachable", text)
