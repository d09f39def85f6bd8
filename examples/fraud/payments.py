"""Sample payments: a hundred honest cards, one in a hurry, and a payment that nobody can read."""

import os
from typing import Any

from sqlalchemy import create_engine, text

import penstock

START = 1_750_000_000
url = os.environ.get("PENSTOCK_URL", "sqlite:///penstock.db")


def payments() -> list[dict[str, Any]]:
    honest = [(f"card-{n % 100}", 1_000 + n, START + 300 * n) for n in range(500)]
    hurried = [("card-x", 2_500, START + 10 * n) for n in range(6)]
    events: list[dict[str, Any]] = [
        {"payload": {"id": number, "cents": cents, "at": at}, "type": "payment.made", "ordering_key": card}
        for number, (card, cents, at) in enumerate([*honest, *hurried], start=1)
    ]
    unreadable = {"payload": {"id": 507, "cents": "a lot"}, "type": "payment.made", "ordering_key": "card-x"}
    return [*events, unreadable]


if __name__ == "__main__":
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        # No key on purpose: a score that was written twice would show.
        connection.execute(text("create table if not exists scores (payment_id bigint, score integer)"))
    engine.dispose()
    with penstock.open(url) as log:
        log.append_many("payments", payments())
