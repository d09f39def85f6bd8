"""Sample parcels, one of them to an address that does not exist."""

import os

from sqlalchemy import create_engine, text

import penstock

PARCELS = 300
url = os.environ.get("PENSTOCK_URL", "sqlite:///penstock.db")

if __name__ == "__main__":
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        # No key on purpose: a place that was written twice would show.
        connection.execute(
            text("create table if not exists places (parcel bigint, lat double precision, lon double precision)")
        )
    engine.dispose()
    addresses = [f"{number} High Street" for number in range(1, PARCELS)] + ["nowhere"]
    with penstock.open(url) as log:
        log.append_many(
            "parcels",
            [
                {"payload": {"id": number, "address": address}, "type": "parcel.posted"}
                for number, address in enumerate(addresses, start=1)
            ],
        )
