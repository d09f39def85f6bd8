"""`readStream`: every micro-batch is one claim, the same however often it is read, and settled after Spark's commit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.spark import register
from tests.support.log_steps import append_orders
from tests.support.spark_query import (
    RecordingSink,
    forget_newest_commit,
    newest_entry,
    read_orders_stream,
    run_query_until_caught_up,
    start_query,
    wait_until_query,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def source(spark: Any) -> None:
    register(spark)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def count(log: penstock.Log, state: str) -> int:
    (group,) = [one for one in log.stats().groups if one.group == "lake"]
    return int(getattr(group, state))


def failing(seen: RecordingSink, at: int) -> Callable[[int], None]:
    """Make the sink fail in this batch, after it was read and before it is written."""

    def before(number: int) -> None:
        if number == at:
            raise RuntimeError("the sink died")

    seen.before = before
    return before


@pytest.mark.shows("S07")
def test_available_now_takes_what_is_there_and_settles_the_last_batch_too(
    spark: Any, log: penstock.Log, log_url: str, checkpoint: Path
) -> None:
    append_orders(log, 2_500)
    seen = RecordingSink()

    def later(number: int) -> None:
        assert count(log, "claimed") > 0, "settled before Spark committed it"
        if number == 0:
            append_orders(log, 10, first=2_500)  # after the query began

    seen.before = later
    run_query_until_caught_up(read_orders_stream(spark, log_url, maxRowsPerTrigger=1_000), seen, checkpoint)
    assert [(number, len(rows)) for number, rows in seen.batches] == [(0, 1_000), (1, 1_000), (2, 500)]
    assert seen.numbers == list(range(2_500)) and log.readers("orders", "lake") == []
    assert (count(log, "published"), count(log, "claimed"), count(log, "pending")) == (2_500, 0, 10)
    again = RecordingSink()
    run_query_until_caught_up(read_orders_stream(spark, log_url, maxRowsPerTrigger=1_000), again, checkpoint)
    assert again.batches == [(3, list(range(2_500, 2_510)))] and count(log, "published") == 2_510
    idle = RecordingSink()
    run_query_until_caught_up(read_orders_stream(spark, log_url), idle, checkpoint)
    assert idle.batches == []


@pytest.mark.shows("S07")
def test_a_row_has_every_field_of_an_event(spark: Any, log: penstock.Log, log_url: str, checkpoint: Path) -> None:
    sent = log.append(
        "orders", {"n": 1}, type="order.created", ordering_key="c-1", headers={"tenant": "eu"}, metadata={"by": "me"}
    )
    rows: list[Any] = []
    query = (
        read_orders_stream(spark, log_url)
        .writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (row,) = rows
    assert (row.offset, row.event_id, row.event_type) == (sent.offset, str(sent.event_id), "order.created")
    assert (bytes(row.payload), row.headers, row.ordering_key, row.stream) == (
        b'{"n":1}',
        {"tenant": "eu"},
        "c-1",
        "orders",
    )
    assert row.metadata and "me" in row.metadata and row.created_at is not None and row.available_at is None


@pytest.mark.shows("S07")
def test_a_replayed_batch_is_the_same_batch(spark: Any, log: penstock.Log, log_url: str, checkpoint: Path) -> None:
    append_orders(log, 1_500)
    frame = read_orders_stream(spark, log_url, maxRowsPerTrigger=1_000)
    first, second = RecordingSink(), RecordingSink()
    run_query_until_caught_up(frame, first, checkpoint)
    forget_newest_commit(checkpoint)  # the batch is settled, but comes again
    append_orders(log, 5, first=1_500)
    run_query_until_caught_up(frame, second, checkpoint)
    assert second.batches[0] == first.batches[-1] and len(first.batches[-1][1]) == 500
    assert second.batches[1:] == [(2, list(range(1_500, 1_505)))] and count(log, "published") == 1_505


@pytest.mark.shows("S07")
def test_a_query_may_begin_before_its_first_event(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    seen = RecordingSink()
    run_query_until_caught_up(read_orders_stream(spark, url), seen, checkpoint)
    assert seen.batches == [(0, [])], "Spark always makes a first batch"
    forget_newest_commit(checkpoint)
    append_orders(log, 5)
    run_query_until_caught_up(read_orders_stream(spark, url), seen, checkpoint)
    assert seen.batches == [(0, []), (0, []), (1, [0, 1, 2, 3, 4])] and count(log, "published") == 5


@pytest.mark.shows("S07")
def test_a_batch_whose_sink_died_is_repeated_unchanged(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    append_orders(log, 1_500)
    frame = read_orders_stream(spark, url, maxRowsPerTrigger=1_000)
    first = RecordingSink()
    failing(first, at=1)
    with pytest.raises(Exception, match="the sink died"):
        run_query_until_caught_up(frame, first, checkpoint)
    assert (count(log, "published"), count(log, "claimed")) == (1_000, 500)
    append_orders(log, 5, first=1_500)
    failing(second := RecordingSink(), at=1)
    with pytest.raises(Exception, match="the sink died"):
        run_query_until_caught_up(frame, second, checkpoint)
    # As if it had died between the claim and Spark's own log of it.
    written = newest_entry(checkpoint / "offsets")
    assert written.name == "1"
    written.unlink()
    (written.parent / ".1.crc").unlink(missing_ok=True)
    third = RecordingSink()
    run_query_until_caught_up(frame, third, checkpoint)
    assert third.batches == [(1, list(range(1_000, 1_500))), (2, list(range(1_500, 1_505)))]
    assert count(log, "published") == 1_505


@pytest.mark.shows("S07")
def test_a_running_query_follows_the_log_and_waits_for_a_paused_group(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    append_orders(log, 10)
    seen = RecordingSink()
    query = start_query(read_orders_stream(spark, url), seen, checkpoint)
    try:
        wait_until_query(lambda: seen.numbers == list(range(10)), query)
        wait_until_query(lambda: count(log, "published") == 10, query)  # without new events
        log.pause("orders", "lake")
        append_orders(log, 10, first=10)
        other = RecordingSink()
        run_query_until_caught_up(read_orders_stream(spark, url), other, checkpoint.with_name("other"))
        assert other.numbers == [] and len(seen.numbers) == 10 and count(log, "pending") == 10
        log.resume("orders", "lake")
        wait_until_query(lambda: count(log, "published") == 20, query)
    finally:
        query.stop()
    append_orders(log, 5, first=20)
    again = start_query(read_orders_stream(spark, url), seen, checkpoint)
    try:
        wait_until_query(lambda: count(log, "published") == 25, again)
    finally:
        again.stop()
    assert seen.numbers == list(range(25))


@pytest.mark.shows("S07")
def test_two_queries_share_a_group_without_double_hand_out(
    spark: Any, log: penstock.Log, log_url: str, tmp_path: Path
) -> None:
    append_orders(log, 3_000)
    frame = read_orders_stream(spark, log_url, maxRowsPerTrigger=250)
    one, two = RecordingSink(), RecordingSink()
    held: set[int] = set()

    def meeting(mine: RecordingSink, other: RecordingSink) -> Callable[[int], None]:
        def before(_: int) -> None:
            held.add(id(mine))
            wait_until(lambda: id(other) in held)  # both hold a claim at the same time

        return before

    one.before, two.before = meeting(one, two), meeting(two, one)
    queries = [
        start_query(frame, seen, tmp_path / name, availableNow=True) for seen, name in ((one, "one"), (two, "two"))
    ]
    for query in queries:
        query.awaitTermination()
    assert one.batches and two.batches
    assert sorted(one.numbers + two.numbers) == list(range(3_000)) and count(log, "published") == 3_000


@pytest.mark.shows("S07")
def test_a_claim_outlives_a_slow_trigger(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    append_orders(log, 20)
    for group in ("lake", "clock"):
        log.create_group("orders", group, lease_seconds=0.3)
    seen = RecordingSink()

    def slow(_: int) -> None:
        assert log.claim("orders", "clock", claimed_by="w") is not None
        wait_until(lambda: log.reap() == 1)  # the lease of this batch has expired
        assert log.claim("orders", "lake", claimed_by="thief") is None

    seen.before = slow
    run_query_until_caught_up(read_orders_stream(spark, url), seen, checkpoint)
    assert seen.batches == [(0, list(range(20)))] and count(log, "published") == 20


@pytest.mark.shows("S07")
def test_a_lost_claim_fails_the_query_until_it_is_skipped(
    spark: Any, log: penstock.Log, log_url: str, checkpoint: Path
) -> None:
    append_orders(log, 20)
    frame = read_orders_stream(spark, log_url)

    def release_then_read(batch: Any, _: int) -> None:
        (reader,) = log.readers("orders", "lake")
        assert log.release_reader("orders", "lake", reader.reader).count == 20
        batch.collect()

    writer = frame.writeStream.foreachBatch(release_then_read).option("checkpointLocation", str(checkpoint))
    with pytest.raises(Exception, match="claim_lost"):
        writer.trigger(availableNow=True).start().awaitTermination()
    seen = RecordingSink()
    with pytest.raises(Exception, match="onClaimLost=skip"):  # the batch had begun, and its result is unknown
        run_query_until_caught_up(frame, seen, checkpoint)
    assert seen.batches == [] and count(log, "pending") == 20
    run_query_until_caught_up(read_orders_stream(spark, log_url, onClaimLost="skip"), seen, checkpoint)
    assert seen.batches == [(0, []), (1, list(range(20)))] and count(log, "published") == 20


@pytest.mark.shows("S07")
def test_a_claim_lost_after_its_batch_was_written_fails_once_and_its_events_return(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    append_orders(log, 20)
    seen = RecordingSink()

    def take_back(_: int) -> None:
        log.rewind("orders", "lake", to="beginning")

    seen.before = take_back
    with pytest.raises(Exception, match="claim_lost"):
        run_query_until_caught_up(read_orders_stream(spark, url), seen, checkpoint)
    assert seen.batches == [(0, list(range(20)))]
    again = RecordingSink()
    run_query_until_caught_up(read_orders_stream(spark, url), again, checkpoint)
    assert again.batches == [(1, list(range(20)))] and count(log, "published") == 20


@pytest.mark.shows("S07")
def test_a_new_group_starts_where_the_options_say(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, tmp_path: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    append_orders(log, 3)
    append_orders(log, 3, first=3)
    offsets = [event.offset for event in log.read("orders")]
    middle = log.read("orders")[3].created_at
    for position, expected in (("end", []), (str(offsets[1]), [2, 3, 4, 5]), (middle.isoformat(), [3, 4, 5])):
        seen = RecordingSink()
        frame = read_orders_stream(spark, url, group=f"from-{position[:3]}", startingPosition=position)
        run_query_until_caught_up(frame, seen, tmp_path / position[:3])
        assert seen.numbers == expected, position


@pytest.mark.shows("S07")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group": ""}, "missing_field"),
        ({"group": "a b"}, "invalid_name"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger"),
        ({"startingPosition": "yesterday"}, "startingPosition"),
        ({"startingPosition": "2026-01-01T00:00:00"}, "naive_datetime"),
        ({"onClaimLost": "shrug"}, "onClaimLost"),
        ({"startingOffset": "3"}, "startingPosition"),
        ({"what": "dead"}, "readStream has no option"),
        ({"group": "ordered"}, "ordered_group"),
    ],
)
def test_bad_options_are_refused_with_our_own_errors(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    postgres_log.create_group("orders", "ordered", ordering="key")
    with pytest.raises(Exception, match=words):
        run_query_until_caught_up(
            read_orders_stream(spark, postgres_log_url, **options), RecordingSink(), tmp_path / "c"
        )
    assert [one.group_name for one in postgres_log.groups("orders")] == ["ordered"]


def test_a_checkpoint_of_another_group_is_refused(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    append_orders(postgres_log, 3)
    run_query_until_caught_up(read_orders_stream(spark, postgres_log_url), RecordingSink(), checkpoint)
    with pytest.raises(Exception, match="unknown_reader"):
        run_query_until_caught_up(
            read_orders_stream(spark, postgres_log_url, group="other"), RecordingSink(), checkpoint
        )


@pytest.mark.shows("S10")
def test_a_redriven_event_enters_the_running_query_and_counts_once(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    log.create_group("orders", "lake", retry=penstock.Retry(base_seconds=0, jitter=0))
    ids = [log.append("orders", {"n": n}, type="t", ordering_key=f"k{n % 2}").event_id for n in range(6)]
    log.kill("orders", "lake", event_ids=[ids[3]], reason="not yet")
    totals: dict[str, list[int]] = {}

    def remember(batch: Any, _: int) -> None:
        for row in batch.collect():
            totals.setdefault(row.ordering_key, []).append(row["count"])

    query = (
        read_orders_stream(spark, url)
        .groupBy("ordering_key")
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(remember)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        wait_until_query(lambda: totals == {"k0": [3], "k1": [2]}, query)
        wait_until_query(lambda: count(log, "published") == 5, query)
        assert log.redrive("orders", "lake", event_ids=[ids[3]]).count == 1
        wait_until_query(lambda: count(log, "published") == 6, query)
        assert log.redrive("orders", "lake", all=True).count == 0
        log.append("orders", {"n": 6}, type="t", ordering_key="k1")
        wait_until_query(lambda: count(log, "published") == 7, query)
    finally:
        query.stop()
    assert totals == {"k0": [3], "k1": [2, 3, 4]}
    # A repeated batch does not change the state again.
    forget_newest_commit(checkpoint)
    query = (
        read_orders_stream(spark, url)
        .groupBy("ordering_key")
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(remember)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert totals == {"k0": [3], "k1": [2, 3, 4, 4]} and count(log, "published") == 7


@pytest.mark.shows("S25")
def test_a_failing_row_in_foreach_batch_is_settled_by_itself_and_the_query_goes_on(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, checkpoint: Path
) -> None:
    from pyspark.sql import functions as f

    log = postgres_log
    log.create_group("orders", "lake", retry=penstock.Retry(max_attempts=2, base_seconds=0, jitter=0))
    append_orders(log, 6)
    written: list[tuple[int, list[int]]] = []

    def write(batch: Any, number: int) -> None:
        n = f.get_json_object(f.col("payload").cast("string"), "$.n").cast("int")
        rows = batch.select("offset", n.alias("n"))
        marked = rows.withColumn("_error", f.when(f.col("n") == 2, "not twos").when(f.col("n") == 4, "not fours"))
        good = penstock.spark.outcomes(marked, number)
        assert good.columns == ["offset", "n"]
        if number == 1:
            (two,) = rows.where("n = 2").collect()
            good = penstock.spark.outcomes(rows, number, {two.offset: penstock.Permanent("never a two")})
        written.append((number, sorted(row.n for row in good.collect())))

    query = (
        read_orders_stream(spark, postgres_log_url)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)  # what is retried at once belongs to it
        .start()
    )
    query.awaitTermination()
    assert written == [(0, [0, 1, 3, 5]), (1, [4])]
    said = [json.loads(one.sources[0].latestOffset) for one in query.recentProgress if one.sources[0].latestOffset]
    assert [one["lag"] for one in said if one["claim"] == 1][:1] == [6], "Spark's progress knows the lag"
    assert (count(log, "published"), count(log, "dead"), count(log, "claimed")) == (5, 1, 0)
    (dead,) = log.deliveries("orders", "lake", state="DEAD")
    assert (dead.json()["n"], dead.last_error, dead.attempts) == (2, "never a two", 2)
    with pytest.raises(penstock.InvalidInput, match="inside of foreachBatch"):
        penstock.spark.outcomes(spark.range(1), 0, {})
