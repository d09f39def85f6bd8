"""Messages for publishers, without a database."""

from __future__ import annotations

from typing import Any

from penstock.connect import Message, Result
from penstock.testing.contract.trial import Trial


def trial_of(publisher: Any, topic: str | None = None) -> Trial:
    """A trial whose `message` makes messages for the publisher."""
    return Trial(publisher, list, topic, (), 0.0)


def publish(publisher: Any, *messages: Message) -> list[Result]:
    """Publish in one call; every message has a result."""
    return list(trial_of(publisher).publish(messages))


def kinds(publisher: Any, *messages: Message) -> list[tuple[str, str]]:
    """Publish in one call; return the kind and the code of every result."""
    return [(one.kind, one.code) for one in publish(publisher, *messages)]
