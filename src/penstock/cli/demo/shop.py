"""The demo's app: what the company does with an order. Handlers' processes import this module: it stays light."""

from __future__ import annotations

import ctypes
import faulthandler
import re
from typing import Any

from penstock import sinks
from penstock.app import App
from penstock.cli.demo.orders import BROKEN
from penstock.core.batch import Event
from penstock.core.retry import Retry
from penstock.engine.handlers.context import Context

SCREENING, REVENUE, WINDOWS = "screening", "revenue", "windows"
GOLD_CENTS = 1_000_000
_PIPELINE_BATCH = 10_000  # several batches, each of which adds its share to the table
_ADD_SCORE = "insert into demo_scores (stream, order_id, score) values (?, ?, ?)"


def app(url: str, stream: str, *, mended: bool, pipelines: bool) -> App:
    """The app as it is deployed first, or with the fraud check mended; pipelines need Spark."""
    made = App(url, name="shop")
    made.subscribe(
        stream, group=SCREENING, retry=Retry(max_attempts=2, base_seconds=0), timeout_seconds=2, keyed=False
    )(screen_mended if mended else screen)
    made.subscribe(stream, group=REVENUE, ordering="key")(add_up)
    if pipelines:
        made.pipeline(stream, group=WINDOWS, sink=sinks.Table("demo_windows"), batch_size=_PIPELINE_BATCH)(per_hour)
    return made


# --- screening: a handler with three bugs ----------------------------------------------------------------------------


def screen(event: Event, ctx: Context) -> None:
    """The fraud check, first version. The score is written in the settle: once, or not at all."""
    order = event.json()
    country = order["country"].upper()  # raises for an order without a country
    _recognise(order["picture"])
    valid = re.fullmatch(r"(\w+)+-\d\d", order["coupon"])  # some texts keep this pattern busy for years
    ctx.execute(_ADD_SCORE, (event.stream, order["id"], _score(country, order["cents"], bool(valid))))


def screen_mended(event: Event, ctx: Context) -> None:
    """The fraud check, second version."""
    order = event.json()
    country = (order["country"] or "xx").upper()
    if order["picture"] != BROKEN:
        _recognise(order["picture"])
    valid = re.fullmatch(r"\w+-\d\d", order["coupon"])
    ctx.execute(_ADD_SCORE, (event.stream, order["id"], _score(country, order["cents"], bool(valid))))


def _recognise(picture: str) -> None:
    """A library in C that does not check what it is given."""
    if picture == BROKEN:
        faulthandler.disable()  # its page of traces would hide the story
        ctypes.string_at(0)  # a real segmentation fault


def _score(country: str, cents: int, coupon: bool) -> int:
    return cents // 100 + 10 * (country == "XX") - 5 * coupon


# --- revenue: state and an event of its own --------------------------------------------------------------------------


def add_up(event: Event, ctx: Context) -> None:
    """A total for every customer, in the order of their orders; who gets past a threshold is told, once."""
    before = ctx.state.get("cents", 0)
    after = before + event.json()["cents"]
    ctx.state["cents"] = after
    if before < GOLD_CENTS <= after:
        ctx.emit(gold(event.stream), {"customer": event.ordering_key}, type="customer.gold")


def gold(stream: str) -> str:
    """The stream in which customers turn gold."""
    return f"{stream}.gold"


# --- windows: a DataFrame --------------------------------------------------------------------------------------------


def per_hour(batch: Any) -> Any:
    """Orders and revenue of every hour in a batch of events; a batch adds its share, and so the table sums up."""
    from pyspark.sql import functions as f

    order = f.from_json(f.decode("payload", "utf-8"), "cents bigint, placed_at bigint").alias("order")
    hour = f.window(f.timestamp_seconds("order.placed_at"), "1 hour")
    return (
        batch.select("stream", order)
        .groupBy("stream", hour)
        .agg(f.count("*").alias("orders"), f.sum("order.cents").alias("cents"))
        .select("stream", f.unix_timestamp("window.start").alias("begins"), "orders", "cents")
    )
