"""A geocoder with moods: slow, down at first, then busy, failing and losing answers. It bills each key once."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DOWN_FOR = 5  # requests
SECONDS = 0.05  # that an answer takes


class Geocoder(ThreadingHTTPServer):
    """The service, and what it has seen so far."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait to be taken: more than come at once

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Request)
        self.lock = threading.Lock()
        self.requests = 0
        self.at_work = self.most_at_work = 0
        self.tries: dict[str, int] = {}  # by key
        self.billed: dict[str, str] = {}  # by key: the address


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Geocoder

    def do_POST(self) -> None:
        key = self.headers["Idempotency-Key"]
        address = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["address"]
        with self.server.lock:
            self.server.requests += 1
            self.server.at_work += 1
            self.server.most_at_work = max(self.server.most_at_work, self.server.at_work)
            down = self.server.requests <= DOWN_FOR
            tries = self.server.tries[key] = self.server.tries.get(key, 0) + (not down)
        time.sleep(SECONDS)
        self.respond(key, address, tries, down)
        with self.server.lock:
            self.server.at_work -= 1

    def respond(self, key: str, address: str, tries: int, down: bool) -> None:
        house = int(address.split(maxsplit=1)[0]) if address[0].isdigit() else None
        if down:
            return self.answer(503)
        if house is None:
            return self.answer(404)
        if tries == 1 and house % 10 == 1:
            return self.answer(429, {"Retry-After": "1"})
        if tries == 1 and house % 10 == 2:
            return self.answer(500)
        with self.server.lock:
            self.server.billed.setdefault(key, address)
        if tries == 1 and house % 10 == 3:
            self.close_connection = True  # done and billed, but the answer is lost
            return None
        return self.answer(200, body={"lat": 52 + house / 1000, "lon": 13.0})

    def answer(self, status: int, headers: dict[str, str] | None = None, body: Any = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


if __name__ == "__main__":
    Geocoder(8099).serve_forever()
