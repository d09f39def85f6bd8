"""Run a pipeline with a small driver; print the memory of its Python process and the results as one JSON line."""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

import penstock
from penstock.declare.pipeline import Pipeline
from penstock.spark.handlers.engine import SparkEngine
from penstock.spark.session import make_session


def parsed(batch: Any) -> Any:
    from pyspark.sql import functions as f

    text = f.col("payload").cast("string")
    return batch.select("offset", f.get_json_object(text, "$.n").cast("bigint").alias("n"), text.alias("text"))


def main(url: str, lake: str) -> None:
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    spark = make_session("local[2]", config=settings)
    with penstock.open(url) as log:
        pipeline = Pipeline("orders", "lake", parsed, penstock.sinks.Parquet(lake))
        engine = SparkEngine(log, spark, url, [], [pipeline], until_drained=True)
        engine.start()
        engine.wait()
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = spark.read.parquet(lake).selectExpr("count(*) as rows", "count(distinct n) as distinct").collect()[0]
    published = engine.snapshot()["orders/lake"]["published"]
    print(json.dumps({**found.asDict(), "published": published, "driver_mb": taken}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
