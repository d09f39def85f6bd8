"""A driver that uses what tests use of Spark, and whose JVM ends by itself: what it has loaded is worth sharing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.spark.session import make_session

OF_A_CLUSTER = (
    "org.apache.spark.deploy.master.Master",
    "org.apache.spark.deploy.worker.Worker",
    "org.apache.spark.deploy.worker.ExecutorRunner",
    "org.apache.spark.deploy.client.StandaloneAppClient",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
)


def unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def main(place: Path) -> None:
    spark = make_session("local[2]", config={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    rows = spark.range(100).selectExpr("id", "id % 7 as k", "cast(id as string) as name")
    rows.groupBy("k").count().write.parquet(str(place / "table"))
    spark.read.parquet(str(place / "table")).mapInArrow(unchanged, "k long, count long").filter("k > 1").collect()
    payloads = spark.createDataFrame([(1, b"{}")], "id int, payload binary")
    payloads.selectExpr("get_json_object(cast(payload as string), '$.n')").collect()
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 5)
        .load()
        .writeStream.option("checkpointLocation", str(place / "checkpoint"))
        .foreachBatch(lambda batch, batch_id: batch.count())
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
    for name in OF_A_CLUSTER:
        spark._jvm.java.lang.Class.forName(name)
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # it writes the archive as it ends


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
