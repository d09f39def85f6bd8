"""Export a stream to Parquet files, each event exactly once, whatever dies on the way."""

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import penstock
from penstock import App, Retry

LAKE = os.environ.get("LAKE", "lake/clicks")  # a directory, or s3://bucket/prefix

app = App(name="lake")  # the log of $PENSTOCK_URL, else sqlite:///penstock.db


# A file gets its name only after its events are settled, so readers never see one twice, nor half of one.
@app.pipeline("clicks", group="lake", sink=penstock.sinks.Parquet(LAKE), retry=Retry(max_attempts=2, base_seconds=0.1))
def export(batch: DataFrame) -> DataFrame:
    click = f.from_json(f.col("payload").cast("string"), "user string, page string")
    # An event whose row has an _error fails alone: it is retried, then a dead letter. The others go to the lake.
    error = f.when(click["page"].isNull(), f.lit("not a click"))
    return batch.select(
        "offset",
        "event_id",
        "created_at",
        click["user"].alias("user"),
        click["page"].alias("page"),
        error.alias("_error"),
    )


if __name__ == "__main__":
    print(app.run(until_drained=True).line())
