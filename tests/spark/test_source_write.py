"""`df.write` and `df.writeStream`: exactly once, whatever is retried, and nothing if one row is bad."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import penstock
from penstock.errors import DuplicateMismatch, InvalidInput, InvalidOption, MissingField, StagedLost, StaleBatch
from penstock.log.new_events import one
from penstock.log.staging import Staging
from penstock.spark.source.options import WriteOptions, parse_write
from penstock.spark.source.writer import PenstockBatchWriter, PenstockStreamWriter, Wrote, check_columns
from penstock.testing import CrashPoint, StatementCounter, VirtualClock
from tests.support.forks import killed_in_child
from tests.support.log_steps import claim_and_settle_all
from tests.support.raw_sql import raw
from tests.support.roles import worker_role

EVERYTHING = (
    "payload string, event_type string, ordering_key string, headers map<string,string>, event_id string, "
    "available_at timestamp, partition_key string, metadata string, content_type string"
)


def write(frame: DataFrame, url: str, **options: Any) -> None:
    frame.write.format("penstock").options(url=url, **{"stream": "out", **options}).mode("append").save()


def numbers(log: penstock.Log, stream: str = "out") -> list[int]:
    return sorted(event.json()["n"] for event in log.read(stream, limit=100_000))


def left_behind(url: str) -> int:
    """Rows and attempts that are still staged."""
    with raw(url) as sql:
        rows, attempts = (
            sql("select count(*) from penstock.staged"),
            sql("select count(*) from penstock.staging_attempts"),
        )
    return int(rows[0][0]) + int(attempts[0][0])


# --- from rows to events ----------------------------------------------------------------------------------------------


@pytest.mark.shows("S08")
def test_every_field_of_an_event_can_be_a_column(spark: Any, log: penstock.Log, log_url: str) -> None:
    due = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    known = penstock.event_id("order-7")
    row = ('{"id": 7}', "order.created", "c-1", {"tenant": "eu"}, str(known), due, "p-1", '{"trace": 1}', None)
    write(spark.createDataFrame([row], EVERYTHING), log_url)
    (event,) = log.read("out")
    assert (event.event_id, event.event_type, event.payload) == (known, "order.created", b'{"id": 7}')
    assert (event.ordering_key, event.partition_key, event.available_at) == ("c-1", "p-1", due)
    assert (event.headers, event.metadata, event.content_type) == ({"tenant": "eu"}, {"trace": 1}, "application/json")
    assert left_behind(log_url) == 0
    log.create_group("out", "g", ordering="key")
    with raw(log_url) as sql:
        (bucket,) = sql("select bucket from penstock.events")[0]
    log.append("out", {}, type="t", ordering_key="c-1")
    with raw(log_url) as sql:
        assert sql("select distinct bucket from penstock.events") == [(bucket,)], "the bucket must be that of append"


@pytest.mark.shows("S08")
def test_columns_without_a_payload_become_one(spark: Any, log: penstock.Log, log_url: str) -> None:
    frame = spark.range(2_000).selectExpr(
        "id as n", "named_struct('cents', id * 100) as price", "concat('c-', id % 7) as customer"
    )
    write(frame, log_url, type="total", ordering_key="customer")
    events = log.read("out", limit=5_000)
    assert [event.json()["n"] for event in sorted(events, key=lambda event: event.json()["n"])] == list(range(2_000))
    one_event = next(event for event in events if event.json()["n"] == 11)
    assert one_event.json() == {"n": 11, "price": {"cents": 1100}, "customer": "c-4"}
    assert (one_event.event_type, one_event.ordering_key) == ("total", "c-4")
    log.create_group("out", "g")
    assert len(claim_and_settle_all(log, "out")) == 2_000


@pytest.mark.shows("S08")
def test_payloads_of_every_type_are_stored(spark: Any, log: penstock.Log, log_url: str) -> None:
    write(spark.sql("select named_struct('a', 1, 'b', array(1, 2)) as payload"), log_url, type="struct")
    write(spark.sql("select map('k', 1.5D) as payload"), log_url, type="map")
    write(spark.sql("select X'00FF' as payload, 'image/png' as content_type"), log_url, type="bytes")
    write(spark.sql("select 'plain words' as payload, 'text/plain' as content_type"), log_url, type="text")
    found = {event.event_type: event for event in log.read("out")}
    assert found["struct"].json() == {"a": 1, "b": [1, 2]} and found["map"].json() == {"k": 1.5}
    assert (found["bytes"].payload, found["bytes"].content_type) == (b"\x00\xff", "image/png")
    assert (found["text"].payload, found["text"].content_type) == (b"plain words", "text/plain")


@pytest.mark.shows("S08")
def test_events_that_were_read_can_be_written_to_another_stream(spark: Any, log: penstock.Log, log_url: str) -> None:
    log.append_many("orders", [{"payload": {"n": n}, "type": "t", "headers": {"a": "b"}} for n in range(5)])
    events = spark.read.format("penstock").options(url=log_url, stream="orders").load()
    write(events.drop("event_id"), log_url)
    assert numbers(log) == [0, 1, 2, 3, 4] and {event.headers["a"] for event in log.read("out")} == {"b"}
    with pytest.raises(PySparkException, match="duplicate_mismatch"):
        write(events, log_url, stream="again")
    assert log.read("again") == [] and left_behind(log_url) == 0


# --- one bad row, and nothing is appended -----------------------------------------------------------------------------


@pytest.mark.shows("S08")
@pytest.mark.parametrize(
    ("column", "good", "bad", "words"),
    [
        ("payload", "{}", None, "[missing_field] payload is null"),
        ("payload", "{}", "{", "[invalid_payload]"),
        ("payload", ["x"], ["x" * 1_100_000], "[too_large]"),
        ("type", "a", "a b", "[invalid_name]"),
        ("ordering_key", "k", "k" * 600, "[too_large] ordering_key"),
        ("event_id", "0198c0de-0000-7000-8000-000000000000", "7", "neither a uuid nor a ULID"),
        ("available_at", None, datetime(2030, 1, 1), "[naive_datetime]"),
        ("headers", None, [("a", "\0")], "[invalid_input] headers"),
    ],
)
def test_a_write_checks_every_rule_of_an_append(
    log: penstock.Log, log_url: str, column: str, good: Any, bad: Any, words: str
) -> None:
    kind = pa.map_(pa.string(), pa.string()) if column == "headers" else None

    def rows(*values: Any) -> pa.RecordBatch:
        payloads = pa.array(["{}"] * len(values))
        return pa.RecordBatch.from_pydict({"payload": payloads, column: pa.array(values, kind)})

    writer = PenstockBatchWriter(WriteOptions(log_url, "out", "t", None, None), rows(good).schema.names)
    with pytest.raises(InvalidInput) as caught:
        writer.write(iter([rows(good), rows(good, bad, good)]))
    assert words in str(caught.value)
    writer.abort([None, None])
    assert log.read("out") == [] and left_behind(log_url) == 0


@pytest.mark.shows("S08")
def test_one_bad_row_fails_the_whole_write(spark: Any, log: penstock.Log, log_url: str) -> None:
    frame = spark.range(0, 10, 1, 2).selectExpr("'{}' as payload", "if(id = 7, 'a b', 'a') as type")
    with pytest.raises(PySparkException) as caught:
        write(frame, log_url)
    assert "[invalid_name] type 'a b' is not a valid name." in str(caught.value)
    assert log.read("out") == [] and left_behind(log_url) == 0


@pytest.mark.shows("S08")
@pytest.mark.parametrize(
    ("expression", "options", "words"),
    [
        ("id", {"typ": "t"}, "[invalid_option] df.write has no option 'typ'. Do you mean 'type'?"),
        ("id", {}, "[missing_field] There is no column `type`"),
        ("id", {"type": "a b"}, "[invalid_name]"),
        ("id", {"type": "t", "stream": "a b"}, "[invalid_name]"),
        ("id", {"type": "t", "ordering_key": "nobody"}, "the column 'nobody', and there is none"),
    ],
)
def test_a_write_that_cannot_work_is_refused_before_it_begins(
    spark: Any, tmp_path: Path, expression: str, options: dict[str, str], words: str
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    with pytest.raises(PySparkException) as caught:
        write(spark.range(3).selectExpr(expression), url, **options)
    assert words in str(caught.value) and not (tmp_path / "log.db").exists()


@pytest.mark.shows("S08")
def test_a_log_cannot_be_overwritten(spark: Any, log_url: str) -> None:
    with pytest.raises(PySparkException, match="append-only and cannot be overwritten"):
        options = {"url": log_url, "stream": "out", "type": "t"}
        spark.range(3).write.format("penstock").options(**options).mode("overwrite").save()


@pytest.mark.shows("J01")
@pytest.mark.parametrize("streaming", [False, True])
def test_a_stream_of_jobs_is_refused(streaming: bool) -> None:
    with pytest.raises(penstock.ReservedStream):
        parse_write({"url": "sqlite:///log.db", "stream": "jobs:default:0:a"}, streaming=streaming)


def test_a_column_that_would_be_lost_is_refused() -> None:
    options = WriteOptions("sqlite:///x.db", "out", "t", "customer", None)
    check_columns(options, ["payload", "customer", "offset", "created_at", "stream", "headers"])
    with pytest.raises(InvalidOption, match="the column 'colour' would be lost"):
        check_columns(options, ["payload", "customer", "colour"])
    with pytest.raises(MissingField, match="no column `payload`"):
        check_columns(WriteOptions("sqlite:///x.db", "out", "t", None, None), ["headers"])


# --- exactly once -----------------------------------------------------------------------------------------------------


def fails_at_the_end_of_its_first_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that fails after all its rows are staged."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == 0:
        raise ConnectionError("the first attempt fails")


@pytest.mark.shows("S08")
def test_a_retried_task_appends_once(spark: Any, log: penstock.Log, log_url: str) -> None:
    frame = spark.range(0, 300, 1, 3).selectExpr("id as n")
    write(frame.mapInArrow(fails_at_the_end_of_its_first_attempt, "n bigint"), log_url, type="t")
    assert numbers(log) == list(range(300))
    assert left_behind(log_url) == 0, "rows staged by failed attempts must be dropped"


@pytest.mark.shows("S08")
def test_a_write_with_an_id_happens_once(spark: Any, log: penstock.Log, log_url: str) -> None:
    frame = spark.range(5).selectExpr("id as n")
    for _ in range(2):
        write(frame, log_url, type="t", batch_id="2026-07-01")
    write(frame, log_url, type="t", stream="elsewhere", batch_id="2026-07-01")
    assert numbers(log) == numbers(log, "elsewhere") == [0, 1, 2, 3, 4]
    write(frame, log_url, type="t")
    assert numbers(log) == sorted([0, 1, 2, 3, 4] * 2), "without an id it is another write"
    assert left_behind(log_url) == 0


@pytest.mark.shows("S08")
def test_a_replayed_batch_appends_nothing(spark: Any, log: penstock.Log, log_url: str, tmp_path: Path) -> None:
    """As if the driver had died between its commit in the log and Spark's own: remove the newest file in commits/."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def arrives(name: str, *rows: int) -> None:
        draft = tmp_path / name
        draft.write_text("".join(json.dumps({"n": n}) + "\n" for n in rows))
        draft.rename(source / name)

    def run() -> list[int]:
        """Run a query over what is there; return the batches that had rows."""
        stream = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).json(str(source))
        options = {"url": log_url, "stream": "out", "type": "t", "checkpointLocation": str(checkpoint)}
        query = stream.writeStream.format("penstock").options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return [one["batchId"] for one in query.recentProgress if one["numInputRows"]]

    arrives("a.json", 1, 2)
    arrives("b.json", 3)
    assert run() == [0, 1] and numbers(log) == [1, 2, 3]
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
    arrives("c.json", 4)
    assert run() == [1, 2], "the second batch must run again"
    assert numbers(log) == [1, 2, 3, 4]
    assert left_behind(log_url) == 0
    with raw(log_url) as sql:
        assert sql("select batch, events from penstock.writes") == [(2, 1)]


@pytest.mark.shows("S08")
def test_every_change_of_a_total_is_an_event_once(spark: Any, log: penstock.Log, log_url: str, tmp_path: Path) -> None:
    """Output that is not a plain append goes through foreachBatch, with the batch number as its id."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\n{"n": 1}\n{"n": 2}\n')
    totals = spark.readStream.schema("n bigint").json(str(tmp_path / "in")).groupBy("n").count()
    batches: list[int] = []

    def append(frame: DataFrame, number: int) -> None:
        batches.append(number)
        write(frame, log_url, type="total", batch_id=f"totals-{number}")

    def run() -> None:
        query = totals.writeStream.foreachBatch(append).outputMode("update")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()

    run()
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    run()
    assert batches == [0, 0], "the batch must run twice"
    assert sorted((event.json()["n"], event.json()["count"]) for event in log.read("out")) == [(1, 2), (2, 1)]


@pytest.mark.shows("S08")
def test_a_query_cannot_write_all_of_its_result_every_time(spark: Any, log_url: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\n')
    totals = spark.readStream.schema("n bigint").json(str(tmp_path / "in")).groupBy("n").count()
    options = {"url": log_url, "stream": "out", "type": "t", "checkpointLocation": str(tmp_path / "checkpoint")}
    query = totals.writeStream.format("penstock").options(**options).outputMode("complete")
    with pytest.raises(PySparkException, match="append-only and cannot be overwritten"):
        query.trigger(availableNow=True).start().awaitTermination()


# --- the parts, one by one --------------------------------------------------------------------------------------------


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


def batch_writer(url: str, **more: Any) -> PenstockBatchWriter:
    return PenstockBatchWriter(WriteOptions(url, "out", "t", None, more.get("batch_id")), ["n"])


@pytest.mark.shows("S08")
def test_only_the_committed_attempt_of_a_task_counts(log: penstock.Log, log_url: str) -> None:
    writer = batch_writer(log_url)
    twin, counts = writer.write(iter([batch(1, 2)])), writer.write(iter([batch(1), batch(2)]))
    other = writer.write(iter([batch(3)]))
    empty = writer.write(iter([]))
    assert isinstance(twin, Wrote) and log.read("out") == []
    writer.commit([counts, other, empty])
    assert [event.json()["n"] for event in log.read("out")] == [1, 2, 3], "must be in the order of tasks and rows"
    assert left_behind(log_url) == 0
    writer.commit([counts, other, empty])
    assert numbers(log) == [1, 2, 3], "a repeated commit must do nothing"


@pytest.mark.shows("S08")
def test_an_aborted_write_leaves_nothing(log: penstock.Log, log_url: str) -> None:
    writer = batch_writer(log_url)
    message = writer.write(iter([batch(1)]))

    def late() -> Iterator[pa.RecordBatch]:
        yield batch(2)
        writer.abort([message, None])
        yield batch(3)

    with pytest.raises(StagedLost, match="given up"):
        writer.write(late())
    assert log.read("out") == [] and left_behind(log_url) == 0


def query_writer(url: str) -> PenstockStreamWriter:
    return PenstockStreamWriter(WriteOptions(url, "out", "t", None, None), ["n"])


def staged(log: penstock.Log, number: int, *numbers: int, query: str = "query:q") -> Wrote:
    """The commit message of a task of a streaming query."""
    staging = Staging(log.store, "out", query, number)
    made = [one("out", {"payload": {"n": n}, "type": "t"})[0] for n in numbers]
    return Wrote(staging.stage([(made, None)]), query)


@pytest.mark.shows("S08")
def test_batches_of_a_query_are_committed_once_and_in_order(log: penstock.Log, log_url: str) -> None:
    writer = query_writer(log_url)
    first = staged(log, 0, 1, 2)
    writer.commit([first, None], 0)
    writer.commit([first, None], 0)
    writer.commit([staged(log, 0, 1, 2)], 0)  # a replay makes new attempts
    assert numbers(log) == [1, 2]
    writer.commit([staged(log, 1, 3)], 1)
    writer.commit([staged(log, 0, 9, query="query:other")], 0)
    assert numbers(log) == [1, 2, 3, 9]
    behind = staged(log, 0, 1, 2)
    with pytest.raises(StaleBatch, match="sent batch 0 for 'out' after it had appended batch 1"):
        writer.commit([behind], 0)
    writer.abort([behind], 0)
    writer.commit([], 7)
    assert numbers(log) == [1, 2, 3, 9] and left_behind(log_url) == 0


@pytest.mark.shows("S08")
def test_two_drivers_of_one_query_commit_a_batch_once(log: penstock.Log, log_url: str) -> None:
    import threading

    brought = [staged(log, 0, *range(200)) for _ in range(4)]
    go = threading.Barrier(len(brought))
    failed: list[BaseException] = []

    def commit(message: Wrote) -> None:
        go.wait()
        try:
            query_writer(log_url).commit([message], 0)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=commit, args=[message]) for message in brought]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and numbers(log) == list(range(200)) and left_behind(log_url) == 0


@pytest.mark.shows("S08")
def test_known_ids_are_appended_once_and_never_as_something_else(log: penstock.Log, log_url: str) -> None:
    def events(n: int, *names: str) -> list[Any]:
        return [
            one("out", {"payload": {"n": n}, "type": "t", "event_id": penstock.event_id(name)})[0] for name in names
        ]

    log.append("out", {"n": 1}, type="t", event_id=penstock.event_id("a"))
    staging = Staging(log.store, "out", "query:q", 0)
    assert staging.commit([staging.stage([(events(1, "a", "b", "b"), None)])])
    assert numbers(log) == [1, 1]
    later = Staging(log.store, "out", "query:q", 1)
    with pytest.raises(DuplicateMismatch):
        later.commit([later.stage([(events(3, "c"), None)]), later.stage([(events(2, "a"), None)])])
    assert numbers(log) == [1, 1]
    assert later.commit([later.stage([(events(3, "c"), None)])]), "the refused commit left a mark"
    assert numbers(log) == [1, 1, 3]


@pytest.mark.shows("S08")
def test_committing_rows_that_were_dropped_is_an_error(
    clocked: penstock.Log, clock: VirtualClock, log_url: str
) -> None:
    log = clocked
    slow = staged(log, 0, 1, 2, query="query:slow")
    staged(log, 0, 7, query="pipeline")  # kept as long as its lease
    clock.advance(timedelta(days=1, seconds=1).total_seconds())
    staged(log, 0, 8, query="query:running")
    fresh = staged(log, 0, 3, query="query:quick")
    Staging(log.store, "out", "query:quick", 0).commit([fresh.staged])
    assert left_behind(log_url) == 4, "the next commit must drop only what was not committed for a day"
    with pytest.raises(StagedLost, match="staged 2 events, but 0 are left"):
        Staging(log.store, "out", "query:slow", 0).commit([slow.staged])
    assert numbers(log) == [3]


@pytest.mark.shows("S08")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_killed_anywhere_in_its_commit_appends_once(
    log: penstock.Log, log_url: str, when: str, make_log: Callable[..., penstock.Log]
) -> None:
    """Kill the driver at every statement of a commit; the next driver repeats the batch."""
    counter = StatementCounter()
    counting = make_log(hook=counter)
    message = staged(log, 0, 0, query="query:count")
    counter.reset()
    Staging(counting.store, "out", "query:count", 0).commit([message.staged])
    assert {"stage.claim_batch", "stage.append", "commit", "stage.drop_rows"} <= set(counter.blocks)
    for number in range(1, len(counter.blocks) + 1):
        query = f"query:{number}"
        message = staged(log, 0, number, query=query)
        assert _killed_while_committing(log_url, CrashPoint(when, number), query, message)
        where = f"{when} statement {number}, {counter.blocks[number - 1]}"
        happened = appended(log_url).count(number)
        again = staged(log, 0, number, query=query)
        assert Staging(log.store, "out", query, 0).commit([again.staged]) is (happened == 0), where
        assert appended(log_url) == list(range(number + 1)), where
    assert left_behind(log_url) == 0


def appended(url: str) -> list[int]:
    """All committed numbers, even while the horizon waits for the server to notice the killed process."""
    with raw(url) as sql:
        return sorted(json.loads(bytes(row[0]))["n"] for row in sql("select payload from penstock.events"))


def _killed_while_committing(url: str, point: CrashPoint, query: str, message: Wrote) -> bool:
    def commit() -> None:
        dying = penstock.open(url, hook=point)
        point.arm()
        Staging(dying.store, "out", query, 0).commit([message.staged])

    return killed_in_child(commit)


@pytest.mark.shows("S08")
def test_a_worker_role_may_write(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with worker_role(postgres_log_url) as (url, _), penstock.open(url) as role:
        query_writer(postgres_log_url)
        message = staged(role, 0, 1)
        assert Staging(role.store, "out", "query:q", 0).commit([message.staged])
        Staging(role.store, "out", "query:q", 1).abort([staged(role, 1, 2).staged])
    assert numbers(postgres_log) == [1] and left_behind(postgres_log_url) == 0
