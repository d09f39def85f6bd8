"""Archives written by Spark, and `spark.read` over archive and log as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.archive import write
from penstock.archive.write import archive
from penstock.cli.app import run as command
from penstock.log.archives import record
from penstock.log.archives.places import Place
from penstock.spark.source.batch import PenstockReader
from penstock.spark.source.options import parse_read
from tests.support.log_steps import claim_and_settle_all


class Killed(BaseException):
    """The process dies here."""


def fill(log: penstock.Log, count: int) -> None:
    events = [
        {
            "payload": {"n": n},
            "type": "ab"[n % 2],
            "ordering_key": f"k{n % 5}",
            "headers": {"n": str(n)} if n % 3 else None,
        }
        for n in range(count)
    ]
    log.append_many("orders", events)
    log.append("other", {}, type="t")


def load(spark: Any, url: str, **options: Any) -> Any:
    return spark.read.format("penstock").options(url=url, **{"stream": "orders", **options}).load()


def rows(frame: Any) -> list[Any]:
    return sorted((row.asDict() for row in frame.collect()), key=lambda row: row["offset"])


@pytest.fixture
def bucket(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in an object store."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    secrets = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    place = f"s3://lake/cold?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1&allow_bucket_creation=true"
    fs.FileSystem.from_uri(place)[0].create_dir("lake")
    yield place
    server.stop()


@pytest.mark.shows("O05")
def test_a_prune_between_planning_and_reading_loses_and_repeats_nothing(
    spark: Any, log: penstock.Log, log_url: str, tmp_path: Path
) -> None:
    fill(log, 60)
    every = [one.offset for one in log.read("orders")]
    archive(log, "orders", str(tmp_path), spark=spark, upto=every[29])
    log.prune("orders", upto=every[9])
    schema = load(spark, log_url).schema
    reader = PenstockReader(parse_read({"url": log_url, "stream": "orders"}), schema)
    planned = reader.partitions()
    archive(log, "orders", str(tmp_path), spark=spark, upto=every[49])
    log.prune("orders", upto=every[44])
    found = [offset for piece in planned for batch in reader.read(piece) for offset in batch["offset"].to_pylist()]
    assert sorted(found) == every
    after = reader.partitions()
    log.restore("orders", after=every[4])
    found = [offset for piece in after for batch in reader.read(piece) for offset in batch["offset"].to_pylist()]
    assert sorted(found) == every
    later = log.event("orders", log.append("orders", {}, type="t").event_id).created_at
    with log.store.transaction(write=False) as tx:
        assert record.files_of(tx, "orders", 0, every[-1], until=later)
        assert not record.files_of(tx, "orders", 0, every[-1], since=later), "a file was not left out by its time"


@pytest.mark.shows("O05")
def test_archive_and_log_are_read_as_one(
    spark: Any, log: penstock.Log, log_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(log, 200)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=150, claimed_by="w")
    assert lease is not None
    lease.settle(dead={lease.events[3].event_id: "no"})
    before = rows(load(spark, log_url))
    middle = before[120]["offset"]
    first = archive(log, "orders", str(tmp_path), spark=spark, upto=middle, by="me")
    assert (first.events, first.upto, len(first.archives)) == (121, middle, 1)
    assert archive(log, "orders", str(tmp_path), spark=spark, upto=middle).events == 0, "archived twice"
    assert command(["archive", "orders", str(tmp_path), "--prune", "--json", "--url", log_url]) == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["events"], said["pruned"]) == (79, 149)
    assert rows(load(spark, log_url)) == before
    assert len(rows(load(spark, log_url, archive="no"))) == 51
    assert rows(penstock.spark.events(spark, log_url, "orders")) == before
    native = spark.read.parquet(*[str(path) for path in tmp_path.rglob("*.parquet")])
    assert sorted(row["offset"] for row in native.select("offset").collect()) == [row["offset"] for row in before]
    assert dict(native.dtypes)["created_at"] == "timestamp"
    with_filter = load(spark, log_url).where(f"offset > {middle - 5} and event_type = 'a'").select("event_id")
    wanted = {row["event_id"] for row in before if row["offset"] > middle - 5 and row["event_type"] == "a"}
    assert {row["event_id"] for row in with_filter.collect()} == wanted
    since = before[100]["created_at"].astimezone().isoformat()
    assert rows(load(spark, log_url, since=since, columns="offset"))[-1] == {"offset": before[-1]["offset"]}
    for known in log.archives("orders"):
        said = json.loads(Place(known.place).read(f"{known.folder}/{record.MANIFEST}"))
        assert said["events"] == known.events == sum(file["events"] for file in said["files"])
    log.restore("orders")
    assert rows(load(spark, log_url)) == before and len(rows(load(spark, log_url, archive="no"))) == 200


@pytest.mark.shows("O05")
def test_an_archive_killed_at_any_step_is_completed_once(
    spark: Any, log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 30)

    def dies(*args: Any, **more: Any) -> Any:
        raise Killed

    def dies_after(do: Any) -> Any:
        def run(*args: Any, **more: Any) -> Any:
            do(*args, **more)
            raise Killed

        return run

    steps = [
        (write, "_write", dies),
        (write, "describe", dies),
        (record, "manifest", dies),
        (Place, "write", dies),
        (Place, "rename", dies),
        (Place, "rename", dies_after(Place.rename)),
        (record, "finish", dies),
    ]
    for where, name, death in steps:
        with monkeypatch.context() as dead, pytest.raises(Killed):
            dead.setattr(where, name, death)
            archive(log, "orders", str(tmp_path), spark=spark)
        assert [one.state for one in log.archives()] == ["writing"]
        log.append("orders", {"later": name}, type="t")
    with monkeypatch.context() as dead, pytest.raises(Killed):
        dead.setattr(record, "finish", dies_after(record.finish))
        archive(log, "orders", str(tmp_path), spark=spark)
    done = archive(log, "orders", str(tmp_path), spark=spark)
    assert done.events == len(steps), "what was appended meanwhile"
    assert [(one.state, one.events) for one in log.archives()] == [("done", 30), ("done", len(steps))]
    from pyarrow import parquet

    files = [*tmp_path.rglob("*.parquet")]
    offsets = [one for path in files for one in parquet.ParquetFile(path).read(["offset"])["offset"].to_pylist()]
    assert sorted(offsets) == [one.offset for one in log.read("orders")]
    assert not [path for path in (tmp_path / "orders").iterdir() if path.name.startswith("_")]


@pytest.mark.shows("O05")
def test_an_archive_in_an_object_store(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, bucket: str
) -> None:
    log = postgres_log
    fill(log, 40)
    log.create_group("orders", "g")
    claim_and_settle_all(log)
    before = rows(load(spark, postgres_log_url))
    done = archive(log, "orders", bucket, spark=spark, prune=True)
    assert (done.events, done.pruned) == (40, 40)
    assert (
        rows(load(spark, postgres_log_url)) == before == rows(penstock.spark.events(spark, postgres_log_url, "orders"))
    )
    assert len(log.erase(before[7]["event_id"], reason="gdpr").files) == 1
    again = rows(load(spark, postgres_log_url))
    assert bytes(again[7]["payload"]) == b"{}" and [*again[:7], *again[8:]] == [*before[:7], *before[8:]]
    assert log.restore("orders").events == 40 and log.event("orders", before[7]["event_id"]).erased
    place = Place(bucket)
    (known,) = log.archives()
    assert known.folder is not None
    named = {one["path"] for one in json.loads(place.read(f"{known.folder}/{record.MANIFEST}"))["files"]}
    assert {path for path in place.listed(known.folder) if path.endswith(".parquet")} == named
