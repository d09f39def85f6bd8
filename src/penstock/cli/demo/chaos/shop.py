"""The shop under chaos: its tables, its orders and its app. Handlers' processes import this module: it stays light."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from penstock.app import App
from penstock.core.batch import Event
from penstock.core.retry import Retry
from penstock.core.signals import Permanent
from penstock.engine.handlers.context import Context

LEDGER, MAIL, FRAUD = "ledger", "mail", "fraud"
GROUPS: Final = (LEDGER, MAIL, FRAUD)
CUSTOMERS: Final = 20  # of each producer
_LEASE_SECONDS: Final = 2.0  # so short that who watches sees work being taken over
_STUMBLES: Final = 0.01  # of all orders, at the first attempt
_STATELESS: Final = 0.01  # of all orders: no country, which the fraud check gives up on at once
# The budget is for failures of the shop's own; being killed must not use it up.
_RETRY = Retry(max_attempts=20, base_seconds=0.2, cap_seconds=1.0)

# Without a unique key on effects, so that one that happened twice would show.
_ORDERS = """create table if not exists chaos_orders (stream text, producer bigint, number bigint, id text,
    customer text, nth bigint, cents bigint, country text, primary key (stream, producer, number))"""
_EFFECTS = "(entry {}, stream text, group_name text, order_id text, customer text, nth bigint)"
TABLES: Final = {
    "postgresql": (
        _ORDERS,
        f"create table if not exists chaos_effects {_EFFECTS.format('bigint generated always as identity')}",
        "create index if not exists chaos_effects_of on chaos_effects (stream, group_name)",
    ),
    "sqlite": (
        _ORDERS,
        f"create table if not exists chaos_effects {_EFFECTS.format('integer primary key')}",
        "create index if not exists chaos_effects_of on chaos_effects (stream, group_name)",
    ),
}
_ADD_EFFECT = "insert into chaos_effects (stream, group_name, order_id, customer, nth) values (?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Order:
    """The n-th order of a producer: always the same one for the same seed."""

    producer: int
    number: int
    id: str
    customer: str
    nth: int  # of this customer, from 1
    cents: int
    country: str | None
    stumbles: bool

    @classmethod
    def of(cls, seed: int, producer: int, number: int) -> Order:
        chance = random.Random(f"{seed}/{producer}/{number}")
        customer = f"c{producer}-{number % CUSTOMERS:02}"
        country = None if chance.random() < _STATELESS else chance.choice(["de", "es", "fr", "it", "nl", "pl"])
        return cls(
            producer,
            number,
            f"{producer}-{number}",
            customer,
            number // CUSTOMERS + 1,
            chance.randrange(100, 20_000),
            country,
            chance.random() < _STUMBLES,
        )

    def event(self) -> dict[str, Any]:
        """What the rest of the company learns of it."""
        shown = ("id", "nth", "cents", "country", "stumbles")
        return {name: getattr(self, name) for name in shown}


def app(stream: str) -> App:
    """The app that every worker runs."""
    made = App(name="shop")
    for group, handler in ((LEDGER, book), (MAIL, send), (FRAUD, screen)):
        ordered = group == LEDGER
        made.subscribe(
            stream,
            group=group,
            ordering="key" if ordered else None,
            keyed=None if ordered else False,
            retry=_RETRY,
            lease_seconds=_LEASE_SECONDS,
            batch_seconds=0.5,
        )(handler)
    return made


def receipts(stream: str) -> str:
    """The stream into which `mail` emits."""
    return f"{stream}.receipts"


def book(event: Event, ctx: Context) -> None:
    """Keep a total for every customer, in the order of their orders."""
    order = event.json()
    ctx.state["cents"] = ctx.state.get("cents", 0) + order["cents"]
    _note(event, ctx, LEDGER, order)


def send(event: Event, ctx: Context) -> None:
    """Emit a receipt; now and then the mail server is not in the mood."""
    order = event.json()
    if order["stumbles"] and event.attempts == 1:
        raise ConnectionError("the mail server closed the connection")
    ctx.emit(receipts(event.stream), {"order": order["id"]}, type="receipt.sent")
    _note(event, ctx, MAIL, order)


def screen(event: Event, ctx: Context) -> None:
    """Give up on an order without a country at once; it is for a person to look at."""
    order = event.json()
    if order["country"] is None:
        raise Permanent("an order without a country")
    _note(event, ctx, FRAUD, order)


def _note(event: Event, ctx: Context, group: str, order: dict[str, Any]) -> None:
    """The effect in the shop's own table: it commits with the lease's end, or not at all."""
    ctx.execute(_ADD_EFFECT, (event.stream, group, order["id"], event.ordering_key, order["nth"]))
