"""The other side of a webhook: check the signature, handle every event once, and answer."""

import json
import os
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock import InvalidSignature
from penstock.connect import verify_webhook

SECRET = os.environ.get("WEBHOOK_SECRET", "only for this example")
PORT = int(os.environ.get("RECEIVER_PORT", "8098"))
DATABASE = "receiver.db"
LARGEST = 2_000_000


class Receiver(BaseHTTPRequestHandler):
    """POST takes an event, GET shows the orders."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        if size > LARGEST:
            self.close_connection = True
            return self.answer(413, {"error": "too large"})
        body = self.rfile.read(size)
        try:
            event_id = verify_webhook(SECRET, self.headers, body)  # before anything in the body is believed
        except InvalidSignature as error:
            return self.answer(400, {"error": str(error)})
        order = json.loads(body)["data"]
        # The id and what follows from the event are stored in one transaction: both, or neither.
        with sqlite3.connect(DATABASE, timeout=30) as database:
            new = database.execute("insert or ignore into handled values (?)", (event_id,)).rowcount
            if new:
                database.execute("insert into orders values (?, ?)", (order["id"], order["amount"]))
        return self.answer(200, {"handled": bool(new)})

    def do_GET(self) -> None:
        with sqlite3.connect(DATABASE, timeout=30) as database:
            rows = database.execute("select id, amount from orders order by id").fetchall()
        self.answer(200, [{"id": number, "amount": amount} for number, amount in rows])

    def answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    with sqlite3.connect(DATABASE) as made:
        made.execute("create table if not exists handled (event_id text primary key)")
        made.execute("create table if not exists orders (id integer, amount real)")
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Receiver)
    print(f"listening on http://127.0.0.1:{server.server_port}/orders", flush=True)
    server.serve_forever()
