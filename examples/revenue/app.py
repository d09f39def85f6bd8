"""Revenue by minute, up to date within seconds: a streaming query with windows, into a table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import penstock

app = penstock.App(name="revenue")  # the log of $PENSTOCK_URL


# A minute comes with its whole total each time it changes, and replaces the row it had.
@app.query(
    "sales",
    group="revenue",
    output_mode="update",
    sink=penstock.sinks.Table("revenue", mode="upsert", keys=["minute"]),
)
def revenue_by_minute(sales: DataFrame) -> DataFrame:
    sale = f.from_json(f.col("payload").cast("string"), "cents bigint, at timestamp")
    minutes = (
        sales.select(sale.alias("sale"))
        .select("sale.*")
        # Sales may come ten minutes late. After that a minute is closed, and Spark forgets its state.
        .withWatermark("at", "10 minutes")
        .groupBy(f.window("at", "1 minute"))
        .agg(f.sum("cents").alias("cents"), f.count("*").alias("sales"))
    )
    return minutes.select(f.date_format("window.start", "yyyy-MM-dd HH:mm").alias("minute"), "cents", "sales")


if __name__ == "__main__":
    app.run(until_drained=True)  # what is there now; leave it out to go on until Ctrl-C
