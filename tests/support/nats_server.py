"""A real NATS server with JetStream; it keeps what it was told when it is killed."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats

from tests.support.server_process import ServerProcess

_BINARY = Path(sys.prefix) / "bin" / "nats-server"


@dataclass(frozen=True)
class Stored:
    """A message of a stream, its headers as they came."""

    subject: str
    data: bytes
    headers: list[tuple[str, bytes]]


class NatsServer(ServerProcess):
    """Starts on `with`; `password` is what clients must give, as the user `me`."""

    def __init__(self, password: str | None = None, *settings: str) -> None:
        super().__init__()
        self.password = password
        self._settings = settings

    def command(self) -> Sequence[str]:
        users = () if self.password is None else ("--user", "me", "--pass", self.password)
        return (str(_BINARY), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", ".", *users, *self._settings)

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f"me:{self.password}@"
        return f"nats://{secret}127.0.0.1:{self.port}"

    def ask(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run something with a client of the test's own."""

        async def run() -> Any:
            client = await nats.connect(self.url)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def create_stream(self, name: str, *subjects: str, **settings: Any) -> None:
        self.ask(lambda client: client.jetstream().add_stream(name=name, subjects=list(subjects), **settings))

    def messages(self, stream: str) -> list[Stored]:
        """Read all messages of a stream."""

        async def read(client: Any) -> list[Stored]:
            info = await client.jetstream().stream_info(stream)
            found = []
            for number in range(info.state.first_seq or 1, info.state.last_seq + 1):
                asked = json.dumps({"seq": number}).encode()
                answer = await client.request(f"$JS.API.STREAM.MSG.GET.{stream}", asked, timeout=30)
                found.append(_stored(json.loads(answer.data)["message"]))
            return found

        return list(self.ask(read))


def _stored(message: Any) -> Stored:
    lines = base64.b64decode(message.get("hdrs", "")).split(b"\r\n")[1:]
    pairs = (line.split(b": ", 1) for line in lines if line)
    headers = [(name.decode(), value) for name, value in pairs]
    return Stored(message["subject"], base64.b64decode(message.get("data", "")), headers)
