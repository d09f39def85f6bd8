"""Read a large stream with a driver of 1 GB, as a table and as a stream; print what was found as one JSON line."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from penstock.spark.session import make_session


def main(url: str, place: str) -> None:
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    spark = make_session("local[2]", config=settings)
    events = spark.read.format("penstock").options(url=url, stream="orders", columns="offset,payload").load()
    n = "cast(get_json_object(string(payload), '$.n') as bigint)"
    partitions = events.rdd.getNumPartitions()
    (found,) = events.selectExpr("count(*) as rows", f"sum({n}) as total").collect()
    streamed = [0, 0]

    def add(batch: Any, number: int) -> None:
        (row,) = batch.selectExpr("count(*) as rows", f"sum({n}) as total").collect()
        streamed[0] += row.rows
        streamed[1] += row.total or 0

    options = {
        "url": url,
        "stream": "orders",
        "group": "lake",
        "columns": "offset,payload",
        "maxRowsPerTrigger": 1_000_000,
    }
    query = (
        spark.readStream.format("penstock")
        .options(**options)
        .load()
        .writeStream.foreachBatch(add)
        .option("checkpointLocation", str(Path(place) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps({**found.asDict(), "partitions": partitions, "streamed": streamed, "driver_mb": taken}), flush=True
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
