"""Batches of a pipeline in flight: side by side, gathered, ended when they hang, and each event done by one attempt."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import sinks
from penstock.errors import StagedLost
from penstock.spark.pipelines.read_once import is_straight
from penstock.spark.pipelines.spark_jobs import Watch
from tests.support.declarations import pipeline
from tests.support.log_steps import append_orders, append_orders_of_two_types, count_by_state
from tests.support.spark_pipeline import (
    create_numbers_table,
    run_pipeline_until_drained,
    running_pipeline,
    select_offset_and_n,
    stored_numbers,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
ONE_ATTEMPT = penstock.Retry(max_attempts=1)


@pytest.mark.shows("S23")
def test_a_slow_batch_does_not_hold_up_the_next_and_a_trickle_is_gathered(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def slow(batch: Any) -> Any:
        from pyspark.sql import functions as f

        @f.udf("bigint")
        def waiting(n):  # no type hints: Spark would use them
            import time

            while n == 0 and not go.exists():
                time.sleep(0.05)
            return n

        return select_offset_and_n(batch).withColumn("n", waiting("n"))

    append_orders_of_two_types(postgres_log, 30)
    create_numbers_table(postgres_log_url)
    one = pipeline(slow, sinks.Table("numbers"), batch_size=10, linger_seconds=1)
    with running_pipeline(postgres_log, spark, one) as worker:
        wait_until(lambda: count_by_state(postgres_log).get("published") == 20, seconds=120)
        assert stored_numbers(postgres_log_url) == list(range(10, 30)) and worker.busy
        go.touch()
        wait_until(lambda: count_by_state(postgres_log) == {"published": 30}, seconds=120)
        wait_until(lambda: worker.idle, seconds=60)
        for n in range(30, 35):
            append_orders(postgres_log, 1, first=n)
        wait_until(lambda: count_by_state(postgres_log) == {"published": 35}, seconds=120)
        assert worker.counters.snapshot()["leases"] == 4, "five events that came one by one are one batch"
    assert stored_numbers(postgres_log_url) == list(range(35))


@pytest.mark.shows("S23")
def test_a_hanging_function_is_ended_and_its_event_fails(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any
) -> None:
    def hanging(batch: Any) -> Any:
        from pyspark.sql import functions as f

        @f.udf("bigint")
        def checked(n):  # no type hints: Spark would use them
            import time

            if n == 7:
                time.sleep(600)
            return n

        return select_offset_and_n(batch).withColumn("n", checked("n"))

    append_orders_of_two_types(postgres_log, 12)
    create_numbers_table(postgres_log_url)
    run_pipeline_until_drained(
        postgres_log, spark, pipeline(hanging, sinks.Table("numbers"), timeout_seconds=8, retry=ONE_ATTEMPT)
    )
    assert stored_numbers(postgres_log_url) == [n for n in range(12) if n != 7]
    (dead,) = postgres_log.deliveries("orders", "g", state="DEAD")
    assert dead.json() == {"n": 7} and dead.error_code == "timed_out" and "8 s" in str(dead.last_error)


@pytest.mark.shows("S20")
def test_rows_and_errors_come_from_one_attempt(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, tmp_path: Path
) -> None:
    """A function that answers differently each time, in a worker that dies after its rows were staged."""
    died = tmp_path / "died"

    def fickle(batch: Any) -> Any:
        def judged(batches):  # no type hints: Spark would use them
            import os
            import random

            import pyarrow as pa

            rows = 0
            for one in batches:
                rows += len(one)
                errors = [random.choice(["bad luck", None]) for _ in range(len(one))]
                yield one.append_column("_error", pa.array(errors, pa.string()))
            if not rows:  # the second attempt reads nothing: what it makes of that must not count
                yield pa.RecordBatch.from_pydict({"offset": [1], "n": [-1], "_error": pa.array([None], pa.string())})
            if not died.exists():
                died.touch()
                os._exit(3)

        return select_offset_and_n(batch).mapInArrow(judged, "offset bigint, n bigint, _error string")

    append_orders_of_two_types(postgres_log, 200)
    create_numbers_table(postgres_log_url)
    run_pipeline_until_drained(postgres_log, spark, pipeline(fickle, sinks.Table("numbers"), retry=ONE_ATTEMPT))
    assert died.exists()
    dead = {one.json()["n"] for one in postgres_log.deliveries("orders", "g", state="DEAD", limit=300)}
    assert 0 < len(dead) < 200 and stored_numbers(postgres_log_url) == [n for n in range(200) if n not in dead]


@pytest.mark.shows("S20")
def test_a_batch_whose_shuffle_ran_again_or_whose_rows_are_gone_is_done_again(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real executors are lost in tests/prove."""
    looks: list[bool] = []
    true_answer, true_move = Watch.ran_a_stage_again, penstock.Log.settle

    def again(watch: Watch) -> bool:
        looks.append(true_answer(watch))
        return len(looks) == 1

    moves: list[int] = []

    def settle(log: penstock.Log, *args: Any, **options: Any) -> Any:
        moves.append(1)
        if len(moves) == 1:
            raise StagedLost("Tasks staged 20 rows, but 0 are left.")
        return true_move(log, *args, **options)

    monkeypatch.setattr(Watch, "ran_a_stage_again", again)
    monkeypatch.setattr(penstock.Log, "settle", settle)
    append_orders_of_two_types(postgres_log, 20)
    create_numbers_table(postgres_log_url)
    counted = run_pipeline_until_drained(
        postgres_log,
        spark,
        pipeline(lambda batch: select_offset_and_n(batch).repartition(2, "n"), sinks.Table("numbers")),
    )
    assert looks == [False] * 3 and stored_numbers(postgres_log_url) == list(range(20))
    assert (counted["failed"], counted["dead"], counted["released"]) == (0, 0, 20)


@pytest.mark.shows("S23")
def test_three_bad_rows_in_20_000_take_few_spark_jobs(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bad = (1_234, 7_000, 19_999)

    def throwing(batch: Any) -> Any:
        from pyspark.sql import functions as f

        @f.udf("bigint")
        def checked(n):  # no type hints: Spark would use them
            if n in bad:
                raise ValueError(f"no such order: {n}")
            return n

        return select_offset_and_n(batch).withColumn("n", checked("n"))

    append_orders_of_two_types(postgres_log, 20_000)
    create_numbers_table(postgres_log_url)
    with caplog.at_level(logging.INFO, "penstock"):
        counted = run_pipeline_until_drained(
            postgres_log, spark, pipeline(throwing, sinks.Table("numbers"), retry=ONE_ATTEMPT)
        )
    assert counted["leases"] == 1 and stored_numbers(postgres_log_url) == [n for n in range(20_000) if n not in bad]
    assert {one.json()["n"] for one in postgres_log.deliveries("orders", "g", state="DEAD")} == {*bad}
    told = re.search(r"(\d+) Spark jobs to find 3 failing events: ValueError: no such order", caplog.text)
    assert told is not None and int(told[1]) <= 8


def test_only_plans_without_a_shuffle_are_straight(spark: Any) -> None:
    from pyspark.sql import functions as f

    from penstock.spark.pipelines.frames import CLAIMED_DDL

    batch = spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, CLAIMED_DDL)
    same = f.udf(lambda n: n, "bigint")
    exploded = select_offset_and_n(batch).withColumn("copy", f.explode(f.array(f.lit(0), f.lit(1))))
    for straight in (select_offset_and_n(batch), batch.select(same("offset")).where("1 = 1"), exploded):
        assert is_straight(straight)
    above = batch.where(f.col("offset") > batch.select(f.max("offset")).scalar())
    for other in (batch.union(batch), batch.groupBy("stream").count(), batch.coalesce(1), batch.limit(1), above):
        assert not is_straight(other)
    assert not is_straight(spark.range(3)), "it does not read the batch"
