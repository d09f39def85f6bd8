"""Revenue by minute, up to date within seconds: a group read as a stream, windows, and a table."""

import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from sqlalchemy import create_engine, text

URL = os.environ.get("PENSTOCK_URL", "sqlite:///penstock.db")
CHECKPOINT = Path("checkpoints/revenue").resolve()  # how far the query has got; a restart goes on from here
engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))


def revenue_by_minute(sales: DataFrame) -> DataFrame:
    sale = f.from_json(f.col("payload").cast("string"), "cents bigint, at timestamp")
    return (
        sales.select(sale.alias("sale"))
        .select("sale.*")
        # Sales may come ten minutes late. After that a minute is closed, and Spark forgets its state.
        .withWatermark("at", "10 minutes")
        .groupBy(f.window("at", "1 minute"))
        .agg(f.sum("cents").alias("cents"), f.count("*").alias("sales"))
    )


def store(minutes: DataFrame, batch_id: int) -> None:
    """A minute comes with its whole total each time, so writing it again after a crash changes nothing."""
    rows = minutes.select(f.date_format("window.start", "yyyy-MM-dd HH:mm").alias("minute"), "cents", "sales").collect()
    if rows:  # a few minutes, not the sales: those never leave Spark
        with engine.begin() as connection:
            connection.execute(
                text(
                    """insert into revenue (minute, cents, sales) values (:minute, :cents, :sales)
                       on conflict (minute) do update set cents = excluded.cents, sales = excluded.sales"""
                ),
                [row.asDict() for row in rows],
            )


if __name__ == "__main__":
    spark = SparkSession.builder.appName("revenue").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    sales = spark.readStream.format("penstock").options(url=URL, stream="sales", group="revenue").load()
    query = (
        revenue_by_minute(sales)
        .writeStream.foreachBatch(store)
        .outputMode("update")
        .option("checkpointLocation", str(CHECKPOINT))
        .trigger(availableNow=True)  # what is there now; leave it out to go on for ever
        .start()
    )
    query.awaitTermination()
    engine.dispose()
