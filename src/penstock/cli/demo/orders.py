"""The orders of the demo's shop: the same ones every time, and twelve of them are trouble."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

FEWEST, USUAL, MOST = 100, 20_000, 1_000_000
DAY = 1_780_272_000  # 2026-06-01 00:00 UTC, in seconds
BROKEN = "broken.jpg"
ENDLESS = "A" * 64
_PER_CUSTOMER = 100
_COUNTRIES = ("de", "es", "fr", "it", "nl", "pl")


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer bought, and when."""

    id: int
    customer: str
    cents: int
    placed_at: int
    country: str | None = "de"
    picture: str = "front.jpg"
    coupon: str = "SUN-26"

    def event(self) -> dict[str, Any]:
        """What the rest of the company learns of it."""
        return {
            "id": self.id,
            "cents": self.cents,
            "placed_at": self.placed_at,
            "country": self.country,
            "picture": self.picture,
            "coupon": self.coupon,
        }


# What the first version of the fraud check cannot bear: how many of each, and in what they differ from others.
TROUBLE: tuple[tuple[int, dict[str, Any]], ...] = (
    (8, {"country": None}),
    (3, {"picture": BROKEN}),
    (1, {"coupon": ENDLESS}),
)
POISONED = sum(count for count, _ in TROUBLE)


def make(count: int) -> Iterator[Order]:
    """So many orders of one day, most of them around noon, the troublesome ones spread among them."""
    chance = random.Random(count)
    customers = max(1, count // _PER_CUSTOMER)
    step = count // (POISONED + 1)
    troubles = [trouble for number, trouble in TROUBLE for _ in range(number)]
    chance.shuffle(troubles)
    odd = {step * (place + 1): trouble for place, trouble in enumerate(troubles)}
    for number in range(1, count + 1):
        fields: dict[str, Any] = {
            "customer": f"customer-{chance.randrange(customers):03}",
            "cents": chance.randrange(100, 20_000),
            "placed_at": DAY + int(chance.betavariate(3, 3) * 86_400),
            "country": chance.choice(_COUNTRIES),
        }
        yield Order(number, **(fields | odd.get(number, {})))


def totals(orders: Iterable[Order]) -> Counter[str]:
    """Cents per customer."""
    found: Counter[str] = Counter()
    for one in orders:
        found[one.customer] += one.cents
    return found
