"""Orders out of the log into a table, and the large ones back into the log as events of another stream.

The data source registers itself: `format("penstock")` is known wherever Penstock is installed.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions

URL = os.environ["PENSTOCK_URL"]
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order once, as the group `lake` gets it; each run takes what has come since the last one."""
    events = (
        spark.readStream.format("penstock")
        .options(url=URL, stream="orders", group="lake", maxRowsPerTrigger="100000")
        .load()
    )
    return events.selectExpr(
        "event_id",
        "created_at",
        "ordering_key as customer",
        "cast(get_json_object(string(payload), '$.amount') as double) as amount",
    )


@dp.materialized_view
def revenue() -> DataFrame:
    """What each customer has spent."""
    return spark.read.table("orders").groupBy("customer").agg(functions.sum("amount").alias("spent"))


dp.create_sink("large_orders", "penstock", {"url": URL, "stream": "alerts", "type": "order.large"})


@dp.append_flow(target="large_orders")
def watch_large_orders() -> DataFrame:
    """Large orders, back into the log: other groups handle them from there, with retries and dead letters."""
    large = spark.readStream.table("orders").where("amount >= 100")
    return large.selectExpr("customer as ordering_key", "event_id as order_id", "amount")
