"""`python endpoint.py PORT`: an HTTP endpoint that reads a request and says 204, as fast as Python can."""

from __future__ import annotations

import asyncio
import sys

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Endpoint(asyncio.Protocol):
    def __init__(self) -> None:
        self._read = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._read[:end]).lower()
            size = int(head.partition(b"content-length:")[2].partition(b"\r")[0] or 0)
            if len(self._read) < end + 4 + size:
                return
            del self._read[: end + 4 + size]
            self._transport.write(ANSWER)  # type: ignore[attr-defined]


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
