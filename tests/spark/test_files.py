"""Files become events through Spark: each file once, whatever is killed and whoever else reads them."""

from __future__ import annotations

import os
import signal
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.connect import Files, JsonLines
from penstock.connect.entry_fields import with_headers
from penstock.core.entry import Entry
from penstock.declare.ingest import Ingest
from penstock.engine.ingest.engine import IngestEngine
from penstock.log import files as log_files
from penstock.spark.files import on_spark
from tests.support.local_engine import run_local_until_drained
from tests.support.raw_sql import raw
from tests.support.waiting import wait_until

pytestmark = pytest.mark.shows("R07", "X03")
PATIENCE_SECONDS = 100


def ingested(spark: Any, log: penstock.Log, source: Files, map: Any = None, into: str = "clicks") -> dict[str, int]:
    """Ingest until there is nothing new; return the counters."""
    engine = IngestEngine(log, [on_spark(Ingest(source, into, map), log, spark)], until_drained=True)
    engine.start()
    try:
        assert engine.wait(PATIENCE_SECONDS), engine.ingested()
    finally:
        engine.stop()
    assert engine.paused == {}
    (counts,) = engine.ingested().values()
    return counts


def lines(folder: Path, name: str, numbers: range) -> None:
    """A file that appears whole."""
    hidden = folder / f".{name}"
    hidden.write_bytes(b"".join(orjson.dumps({"n": n}) + b"\n" for n in numbers))
    hidden.rename(folder / name)


def numbers(log: penstock.Log, stream: str = "clicks") -> list[int]:
    return sorted(event.json()["n"] for event in log.read(stream, limit=10_000))


def staged(log: penstock.Log) -> int:
    with raw(log.store.url) as sql:
        return int(sql("select count(*) from penstock.staged")[0][0])


def test_every_file_is_taken_once_and_new_ones_later(spark: Any, postgres_log: penstock.Log, tmp_path: Path) -> None:
    source = Files(tmp_path, kind="jsonl")
    lines(tmp_path, "a.jsonl", range(3_000))
    lines(tmp_path, "b.jsonl", range(3_000, 3_500))
    lines(tmp_path, "_hidden.jsonl", range(9_000, 9_010))
    assert ingested(spark, postgres_log, source)["stored"] == 3_500
    assert ingested(spark, postgres_log, source)["stored"] == 0
    lines(tmp_path, "c.jsonl", range(3_500, 3_600))
    assert ingested(spark, postgres_log, source)["stored"] == 100
    assert numbers(postgres_log) == list(range(3_600)) and staged(postgres_log) == 0
    event = postgres_log.read("clicks", limit=1)[0]
    assert (event.event_type, event.content_type) == ("file.row", "application/json")


@pytest.mark.shows("R12")
def test_rows_that_cannot_become_events_are_rejected_with_their_place(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path
) -> None:
    body = b'{"n": 1}\nno json\n\n{"n": "\xff"}\n{"n": 2, "deep": {"a": [true, null, 1.5]}}\n'
    (tmp_path / "x.jsonl").write_bytes(body + b'{"n": "' + b"x" * 1_100_000 + b'"}\n')
    counts = ingested(spark, postgres_log, Files(tmp_path / "*.jsonl"))
    assert (counts["stored"], counts["rejected"]) == (2, 3)
    assert [event.payload for event in postgres_log.read("clicks")] == [b'{"n": 1}', body.splitlines()[4]]
    told = [event.json() for event in postgres_log.read("clicks.rejected")]
    assert [one["position"].rpartition("@")[2] for one in told] == ["0+1", "0+3", "0+5"]
    assert {one["position"].rpartition("@")[0] for one in told} == {f"file:{tmp_path}/x.jsonl"}
    assert told[2]["code"] == "too_large" and told[2]["cut"]


def test_csv_and_parquet_rows_become_objects_and_nulls_survive(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text('n,name\n1,"Zoë, née X"\n2,\n')
    (tmp_path / "b.csv").write_text("name,other\nx,7\n")
    table = pa.table({"n": [1, None], "ok": [True, False], "raw": [b"\x00\xff", b""], "tags": [["a"], []]})
    pq.write_table(table, tmp_path / "c.parquet")
    ingested(spark, postgres_log, Files(tmp_path / "*.csv"))
    ingested(spark, postgres_log, Files(tmp_path / "*.parquet", type="lake.row"), into="lake")
    assert [event.json() for event in postgres_log.read("clicks")] == [
        {"n": "1", "name": "Zoë, née X"},
        {"n": "2", "name": None},
        {"name": "x", "other": "7"},
    ]
    assert [event.json() for event in postgres_log.read("lake")] == [
        {"n": 1, "ok": True, "raw": "AP8=", "tags": ["a"]},
        {"n": None, "ok": False, "raw": "", "tags": []},
    ]


def test_a_map_chooses_and_its_errors_reject_its_row_alone(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path
) -> None:
    lines(tmp_path, "a.jsonl", range(10))

    def only_odd(entry: Entry) -> dict[str, Any] | None:
        n = entry.json()["n"]
        if n == 5:
            raise ValueError("not five")
        return {"payload": {"n": n}, "type": "odd", "ordering_key": f"k{n}"} if n % 2 else None

    counts = ingested(spark, postgres_log, Files(tmp_path, kind="jsonl"), only_odd)
    assert (counts["stored"], counts["rejected"], counts["dropped"]) == (4, 1, 5)
    assert numbers(postgres_log) == [1, 3, 7, 9]
    assert postgres_log.read("clicks.rejected")[0].json()["reason"] == "not five"


def test_what_json_lines_wrote_becomes_the_same_events(spark: Any, postgres_log: penstock.Log, tmp_path: Path) -> None:
    log = postgres_log
    log.append("orders", {"n": 1}, type="order.created", ordering_key="k", headers={"tenant": "eu"})
    log.append("orders", b"\x00", type="order.picture", content_type="image/png")
    app = penstock.App(name="shop")
    app.publish("orders", group="g", publisher=JsonLines(tmp_path / "out.jsonl"))
    run_local_until_drained(log, *app.subscriptions)
    copied = penstock.open(f"sqlite:///{tmp_path}/copy.db")
    with copied:
        ingested(spark, copied, Files(tmp_path / "out.jsonl"), into="orders")
        names = ("event_id", "event_type", "payload", "content_type", "ordering_key", "headers")
        original, copy = (
            [[getattr(one, name) for name in names] for one in some.read("orders")] for some in (log, copied)
        )
    assert copy == original


def test_a_name_is_no_pattern(spark: Any, postgres_log: penstock.Log, tmp_path: Path) -> None:
    """Spark would read `a1.jsonl` twice, and `a[1].jsonl` never."""
    names = ["a[1].jsonl", "a1.jsonl", "a*.jsonl", "b{1,2}.jsonl", "c?.jsonl", "d\\e.jsonl", "a b%20ü#\n.jsonl"]
    for n, name in enumerate(names):
        lines(tmp_path, name, range(n, n + 1))
    assert ingested(spark, postgres_log, Files(tmp_path, kind="jsonl"))["stored"] == len(names)
    assert numbers(postgres_log) == [*range(len(names))]


@pytest.mark.shows("R12")
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_row_with_the_id_of_another_event_is_rejected_and_no_other(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path, store: str
) -> None:
    """Of an event in another stream, or of a row that says something else."""
    taken, twice, whole = (str(penstock.event_id(name)) for name in ("taken", "twice", "whole"))
    rows = [(taken, 1), (twice, 2), (twice, 3), (twice, 2), (whole, 4)]
    own = {"type": "t", "stream": "x", "offset": 1, "content_type": "application/json"}
    text = b"".join(orjson.dumps({"id": given, **own, "payload": {"n": n}}) + b"\n" for given, n in rows)
    (tmp_path / "a.jsonl").write_bytes(text)
    log = postgres_log if store == "postgresql" else penstock.open(f"sqlite:///{tmp_path}/log.db")
    log.append("other", {}, type="t", event_id=taken)
    counts = ingested(spark, log, Files(tmp_path / "*.jsonl"))
    assert counts["rejected"] == 2 and numbers(log) == [2, 4]
    told = [event.json() for event in log.read("clicks.rejected")]
    assert [(one["code"], one["position"][-3:]) for one in told] == [
        ("duplicate_mismatch", "0+0"),
        ("duplicate_mismatch", "0+2"),
    ]
    if store == "sqlite":
        log.close()


def test_the_same_file_may_go_into_two_streams(spark: Any, postgres_log: penstock.Log, tmp_path: Path) -> None:
    lines(tmp_path, "a.jsonl", range(3))
    for into in ("one", "two"):
        ingested(spark, postgres_log, Files(tmp_path, kind="jsonl"), into=into)
        assert numbers(postgres_log, into) == [0, 1, 2]


def test_files_of_one_job_keep_their_own_columns(spark: Any, postgres_log: penstock.Log, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a[1].parquet")
    pq.write_table(pa.table({"n": [2], "a.b`c": ["kept"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"n": ["another type"]}), tmp_path / "c.parquet")
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    pq.write_table(pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC"))}), tmp_path / "d.parquet")
    ingested(spark, postgres_log, Files(tmp_path, kind="parquet"))
    assert sorted(event.payload for event in postgres_log.read("clicks")) == [
        b'{"at":"2024-01-02T03:04:05.678901Z"}',
        b'{"n":"another type"}',
        b'{"n":1}',
        b'{"n":2,"a.b`c":"kept"}',
    ]


@pytest.mark.shows("R12")
def test_csv_is_read_as_rfc_4180_says_and_rows_that_do_not_fit_are_rejected(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path
) -> None:
    text = 'n,name\n1,"he said ""hi"""\n2,"two\nlines"\n3,back\\slash\n4,one,too many\n5\n6,"a\\"\n'
    (tmp_path / "a[1].csv").write_text(text)
    (tmp_path / "empty.csv").touch()
    counts = ingested(spark, postgres_log, Files(tmp_path, kind="csv"))
    assert (counts["stored"], counts["rejected"]) == (4, 2)
    assert [event.json()["name"] for event in postgres_log.read("clicks")] == [
        *('he said "hi"', "two\nlines", "back\\slash", "a\\")
    ]
    told = [event.json() for event in postgres_log.read("clicks.rejected")]
    assert [b64decode(one["value"]) for one in told] == [b"4,one,too many", b"5"]
    assert {one["reason"] for one in told} == {"the row does not have as many values as the header."}


@pytest.mark.shows("R08")
def test_long_numbers_and_repeated_headers_of_json_lines_come_back(postgres_log: penstock.Log, tmp_path: Path) -> None:
    log, body = postgres_log, b'{"n": 123456789012345678901234567890, "pi": 3.14159265358979323846}'
    pairs: list[tuple[str, str | bytes]] = [("a", "1"), ("a", "2"), ("b", b"\xff")]
    log.append_many(
        "orders", [{"payload": body, "content_type": "application/json", "type": "t", **with_headers(pairs)}]
    )
    app = penstock.App(name="shop")
    app.publish("orders", group="g", publisher=JsonLines(tmp_path / "out.jsonl"))
    run_local_until_drained(log, *app.subscriptions)
    fields = Files("x.jsonl").fields_of(Entry("here", value=(tmp_path / "out.jsonl").read_bytes()))
    assert fields["payload"] == body and fields["headers"]["a"] == "2"
    assert fields["metadata"] == with_headers(pairs)["metadata"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit_loses_and_doubles_nothing(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The process ends between the Spark job and the commit, or between the commit and what follows it."""
    lines(tmp_path, "a.jsonl", range(500))
    append = log_files.append_files

    def crash(*given: Any) -> bool:
        if when == "after":
            append(*given)
        raise SystemExit("killed")

    monkeypatch.setattr(log_files, "append_files", crash)
    reader = on_spark(Ingest(Files(tmp_path, kind="jsonl"), "clicks"), postgres_log, spark).source.open(None)
    batch = reader.read(0.0)
    with pytest.raises(SystemExit):
        postgres_log.ingests.store_files(batch.mark)
    monkeypatch.undo()
    assert ingested(spark, postgres_log, Files(tmp_path, kind="jsonl"))["stored"] == (500 if when == "before" else 0)
    assert numbers(postgres_log) == list(range(500))


@pytest.mark.shows("R11")
def test_two_ingesters_at_once_take_every_file_once(spark: Any, postgres_log: penstock.Log, tmp_path: Path) -> None:
    for n in range(6):
        lines(tmp_path, f"{n}.jsonl", range(100 * n, 100 * (n + 1)))
    one, other = (
        on_spark(Ingest(Files(tmp_path, kind="jsonl"), "clicks"), postgres_log, spark).source.open(None) for _ in "12"
    )
    first, second = one.read(0.0), other.read(0.0)
    assert postgres_log.ingests.store_files(first.mark).stored == 600
    with pytest.raises(Exception, match="another ingester"):
        postgres_log.ingests.store_files(second.mark)
    one.acknowledge(first, None)
    other.overtaken(second)
    assert numbers(postgres_log) == list(range(600)) and staged(postgres_log) == 0
    assert other.read(0.0) is None and other.drained()


def test_a_python_worker_that_dies_is_retried_by_spark_and_doubles_nothing(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path
) -> None:
    lines(tmp_path, "a.jsonl", range(5_000))
    mark = tmp_path / "died"

    def die_once(entry: Entry) -> dict[str, Any]:
        if entry.json()["n"] == 4_000 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"payload": entry.value, "type": "t"}

    counts = ingested(spark, postgres_log, Files(tmp_path / "*.jsonl"), die_once)
    assert mark.exists() and counts["stored"] == 5_000
    assert numbers(postgres_log) == list(range(5_000)) and staged(postgres_log) == 0


def test_a_folder_that_cannot_be_listed_is_waited_for(spark: Any, postgres_log: penstock.Log, tmp_path: Path) -> None:
    source = Files("viewer://nowhere/in", kind="jsonl")
    engine = IngestEngine(postgres_log, [on_spark(Ingest(source, "clicks"), postgres_log, spark)])
    engine.start()
    try:
        wait_until(lambda: next(iter(engine.ingested().values()))["source_errors"] > 0)
        assert engine.paused == {}
    finally:
        engine.stop()
        engine.wait(PATIENCE_SECONDS)


def test_a_file_that_cannot_be_read_stops_nobody_for_good(
    spark: Any, postgres_log: penstock.Log, tmp_path: Path
) -> None:
    broken = tmp_path / "a.parquet"
    broken.write_bytes(b"this is no Parquet")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "b.parquet")
    ingest = Ingest(Files(tmp_path / "*.parquet"), "clicks")
    engine = IngestEngine(postgres_log, [on_spark(ingest, postgres_log, spark)])
    engine.start()
    try:
        wait_until(lambda: next(iter(engine.ingested().values()))["source_errors"] > 0)
        broken.unlink()
        wait_until(lambda: numbers(postgres_log) == [1, 2])
        assert engine.paused == {} and staged(postgres_log) == 0
    finally:
        engine.stop()
        engine.wait(PATIENCE_SECONDS)


def test_a_password_in_a_path_is_refused_and_not_told() -> None:
    with pytest.raises(penstock.InvalidInput, match="password") as refused:
        Files("s3a://key:s3cret-word@lake/*.jsonl")
    assert "s3cret-word" not in str(refused.value)
    assert Files("abfss://box@account.example/*.jsonl").kind == "jsonl"


@pytest.mark.parametrize("given", [{"path": "in"}, {"path": "in", "kind": "xml"}, {"path": "", "kind": "csv"}])
def test_what_is_no_source_of_files_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(penstock.InvalidInput):
        Files(**given)
