"""How the tests run an engine, and what they look at afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.declare.subscription import Policy, Subscription, handler_of
from penstock.engine.local.engine import LocalEngine
from tests.conformance.helpers import raw

AT_ONCE = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
PATIENCE = 180


def subscription(
    *functions: Callable[..., Any], stream: str = "orders", group: str = "g", types: Any = None, **policy: Any
) -> Subscription:
    settings = {"retry": AT_ONCE, **policy}
    return Subscription(stream, group, Policy(**settings), [handler_of(one, types) for one in functions])


def drain(log: penstock.Log, *subscriptions: Subscription) -> LocalEngine:
    """Run until nothing is left."""
    engine = LocalEngine(log, subscriptions, until_drained=True)
    engine.start()
    try:
        assert engine.wait(PATIENCE), f"still at work: {engine.snapshot()}"
    finally:
        engine.stop()
    return engine


def make_done(url: str) -> None:
    """The table that effects are counted in."""
    with raw(url) as sql:
        sql(
            "create table done (id integer primary key, n bigint not null, name text)"
            if url.startswith("sqlite")
            else "create table done (id bigserial primary key, n bigint not null, name text)"
        )


def done(url: str) -> list[int]:
    """Offsets in the order in which their effects were committed."""
    with raw(url) as sql:
        return [n for (n,) in sql("select n from done order by id")]


def lines(path: Path) -> list[list[str]]:
    """What handlers noted."""
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
