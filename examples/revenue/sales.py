"""Sample sales: one every ten seconds for half an hour, every seventh of them five minutes late."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import create_engine, text

import penstock

START = datetime(2026, 7, 1, 12, tzinfo=UTC)
url = os.environ.get("PENSTOCK_URL", "sqlite:///penstock.db")


def sales(first: int, last: int) -> list[dict[str, Any]]:
    """Sales by their numbers, in the order in which they are reported."""
    events = []
    for number in range(first, last):
        at = START + timedelta(seconds=10 * number, minutes=-5 if number % 7 == 0 else 0)
        payload = {"id": number, "cents": 100 + number, "at": at.isoformat()}
        # An id from the sale's number: whoever appends it twice has one event.
        events.append({"payload": payload, "type": "sale.made", "event_id": penstock.event_id(f"sale-{number}")})
    return events


if __name__ == "__main__":
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(
            text("create table if not exists revenue (minute text primary key, cents bigint, sales bigint)")
        )
    engine.dispose()
    with penstock.open(url) as log:
        log.append_many("sales", sales(0, 180))
