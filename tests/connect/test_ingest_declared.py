"""What `app.ingest` takes, what it refuses, and that no password gets out of a source."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import penstock
from penstock.connect import Files, KafkaTopic, ValkeyStream
from penstock.core import entry_ids
from penstock.core.entry_ids import EntryId

URL = "valkey://me:s3cret-word@here:6380/2"


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda app: app.ingest(print, into="a"), "not a source"),
        (lambda app: app.ingest(ValkeyStream(URL, "s"), into="a b"), "not a valid name"),
        (lambda app: app.ingest(ValkeyStream(URL, "s"), into="jobs:default:0:t"), "jobs"),
        (lambda app: app.ingest(ValkeyStream(URL, "s"), into="a" * 120), "not a valid name"),
        (lambda app: app.ingest(ValkeyStream(URL, "s"), into="a", map="click"), "plain function"),
        (lambda app: app.ingest(ValkeyStream("http://here", "s"), into="a"), "valkey://host"),
        (lambda app: app.ingest(ValkeyStream("valkey://me:s3cret-word@here:x", "s"), into="a"), "valkey://host"),
        (lambda app: app.ingest(ValkeyStream(URL, ""), into="a"), "stream"),
        (lambda app: app.ingest(ValkeyStream(URL, "two words"), into="a"), "type"),
        (lambda app: app.ingest(ValkeyStream(URL, "s", min_idle_seconds=0), into="a"), "min_idle_seconds"),
        (lambda app: app.ingest(ValkeyStream(URL, "s", remember_days=-1), into="a"), "remember_days"),
        (lambda app: app.ingest(ValkeyStream(URL, "s", start="middle"), into="a"), "start"),
        (lambda app: app.ingest(KafkaTopic("here:9092", "t", batch=0), into="a"), "batch"),
        (lambda app: app.ingest(KafkaTopic("here:9092", "^t.*"), into="a"), "pattern"),
        (
            lambda app: app.ingest(ValkeyStream("valkey://:12/s3cret-word@here:6379/0", "s"), into="a"),
            "percent-encoded",
        ),
        (lambda app: app.ingest(ValkeyStream("valkey://here/cache", "s"), into="a"), "a number"),
        (lambda app: app.ingest(ValkeyStream(URL, "s", batch=0.5), into="a"), "batch"),  # type: ignore[arg-type]
        (lambda app: app.ingest(KafkaTopic("here:9092", "t", batch=1.5), into="a"), "batch"),  # type: ignore[arg-type]
        (lambda app: app.ingest(ValkeyStream(URL, "s", name=5), into="a"), "name"),  # type: ignore[arg-type]
        (lambda app: app.ingest(KafkaTopic("here:9092", "t", name="a\0b"), into="a"), "name"),
        (lambda app: app.ingest(KafkaTopic("here:9092", "t", config=["a"]), into="a"), "config"),  # type: ignore[arg-type]
        (lambda app: app.ingest(Files(5, kind="csv"), into="a"), "path"),  # type: ignore[arg-type]
        (lambda app: app.ingest(Files("in", kind="csv", name=""), into="a"), "name"),
    ],
)
def test_what_cannot_be_ingested_is_refused_when_it_is_declared(declare: Any, says: str) -> None:
    app = penstock.App(name="shop")
    with pytest.raises(penstock.InvalidInput, match=says) as refused:
        declare(app)
    assert app.ingests == [] and "s3cret-word" not in str(refused.value)


def test_an_async_map_is_refused() -> None:
    async def later(entry: Any) -> None: ...

    with pytest.raises(penstock.InvalidInput, match="plain function"):
        penstock.App(name="shop").ingest(ValkeyStream(URL, "s"), into="a", map=later)  # type: ignore[arg-type]


def test_a_source_is_ingested_once() -> None:
    app = penstock.App(name="shop")
    app.ingest(ValkeyStream(URL, "s"), into="a")
    app.ingest(ValkeyStream(URL, "s", group="another"), into="b")
    with pytest.raises(penstock.PolicyConflict):
        app.ingest(ValkeyStream(URL, "s"), into="c")


def test_databases_of_one_server_are_several_sources() -> None:
    """Entries of one would be taken for entries of the other, and never be stored."""
    urls = ("valkey://here", "valkey://here?db=1", "valkey://here/1?db=2", "unix:///a.sock", "unix:///a.sock?db=1")
    names = [ValkeyStream(url, "s").source.split(":", 1)[1] for url in urls]
    assert names == [
        f"{one}:s:penstock" for one in ("here:6379/0", "here:6379/1", "here:6379/2", "/a.sock", "/a.sock/1")
    ]


@pytest.mark.parametrize(
    "source",
    [ValkeyStream(f"{URL}?password=s3cret-word", "s"), KafkaTopic("h:1", "t", config={"sasl.password": "s3cret-word"})],
)
def test_a_source_tells_no_password(source: Any) -> None:
    assert "s3cret-word" not in repr(source) + source.name + getattr(source, "source", "")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(source)


def test_ids_survive_packing_and_are_cut_into_short_ranges() -> None:
    most = 2**64 - 1
    ids = [
        EntryId(0, 0),
        EntryId(5, 7),
        EntryId(5, 8),
        EntryId(600_000, most),
        EntryId(600_001, 0),
        EntryId(most, most),
    ]
    assert entry_ids.unpack(entry_ids.pack(ids)) == ids
    assert [*entry_ids.ranges(reversed(ids))] == [ids[:4], ids[4:5], ids[5:]]
    assert [entry_ids.parse_key(one.key) for one in ids] == ids
    assert sorted(one.key for one in ids) == [one.key for one in ids]
    regular = [EntryId(1_700_000_000_000 + n // 3, n % 3) for n in range(5_000)]
    assert len(entry_ids.pack(regular)) < 1_000
