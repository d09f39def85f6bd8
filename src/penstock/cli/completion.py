"""What the shell completes: streams and groups of the log, and values that are fixed. It never fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

_PATIENCE_SECONDS = 2.0  # somebody has pressed a key and waits


def fixed(*values: str) -> Callable[[str], list[str]]:
    """Completes one of these, in small letters for who types small letters."""

    def complete(incomplete: str) -> list[str]:
        known = [one.lower() for one in values] if incomplete.islower() else values
        return [one for one in known if one.startswith(incomplete)]

    return complete


def streams(ctx: typer.Context, incomplete: str) -> list[str]:
    """The streams of the log."""
    found = _look(ctx, lambda log: sorted({*log.streams(), *(one.stream for one in log.groups())}))
    return [one for one in found if one.startswith(incomplete)]


def groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """The groups of the stream that was named, or all of them."""
    stream = ctx.params.get("stream")
    found = _look(ctx, lambda log: sorted({one.group_name for one in log.groups(stream)}))
    return [one for one in found if one.startswith(incomplete)]


def groups_everywhere(ctx: typer.Context, incomplete: str) -> list[str]:
    """The groups of all streams."""
    found = _look(ctx, lambda log: sorted({one.group_name for one in log.groups()}))
    return [one for one in found if one.startswith(incomplete)]


def codes(incomplete: str) -> list[str]:
    """The codes of all errors."""
    from penstock.errors import all_errors

    return [one for one in all_errors() if one.startswith(incomplete)]


def _look(ctx: typer.Context, find: Callable[[Any], list[str]]) -> list[str]:
    """What is found in the log within a moment, by a thread that nobody waits for longer; else nothing."""
    found: list[str] = []

    def look() -> None:
        with suppress(Exception):
            from penstock.log.open import open_existing

            with open_existing(_url(ctx), migrate=False) as log:
                found.extend(find(log))

    thread = threading.Thread(target=look, name="penstock-completion", daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return [*found]


def _url(ctx: typer.Context) -> str | None:
    """What `--url` said so far, behind the command's name or before it."""
    context: Any = ctx
    while context is not None:
        if context.params.get("url"):
            return str(context.params["url"])
        context = context.parent
    return None
