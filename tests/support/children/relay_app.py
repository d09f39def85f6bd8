"""An app with a publisher, as a module that other processes import. What its publisher holds must not travel."""

from __future__ import annotations

import os
from collections.abc import Sequence

import penstock
from penstock.connect import Message, Result
from tests.support.notes import write_note

PASSWORD = "hunter2"


class Notes:
    """Sends messages into the notes of a test."""

    batch = 200
    target = "notes"
    password = PASSWORD

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        for message in messages:
            write_note(f"{os.getpid()} {message.id} {message.topic}")
        return None

    def close(self) -> None:
        write_note(f"{os.getpid()} closed")


def handle(event: penstock.Event) -> None:
    """Do nothing: the publisher is not the first that the app declares."""


app = penstock.App(os.environ.get("PENSTOCK_URL"), name="relay")
app.subscribe("orders", group="other")(handle)
app.publish("orders", group="g", publisher=Notes(), topic=lambda event: event.event_type)
RELAYED = app.subscriptions[1]
