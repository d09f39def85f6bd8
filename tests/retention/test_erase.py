"""Erase: one payload is gone, in the log and in archives, and the event stays, marked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import orjson
import pytest

import penstock
from penstock.log.archives import erase as erasing
from penstock.log.archives import files as archived_files
from penstock.log.archives import record
from penstock.log.archives.places import Place
from tests.support.log_steps import append_orders, claim_and_settle_all
from tests.support.plain_archive import archive, complete
from tests.support.raw_sql import raw

SECRET = "iban-4711"


def left_in(folder: Path) -> list[str]:
    """Parquet files in which a payload stands as it was."""
    from pyarrow import parquet

    found = []
    for path in folder.rglob("*.parquet"):
        rows = parquet.ParquetFile(path).read().to_pylist()
        found += [path.name for row in rows if SECRET in str(row["payload"]) or SECRET in str(row["metadata"])]
    return found


@pytest.mark.shows("O05", "K04")
def test_a_payload_and_what_quotes_it_are_gone(log: penstock.Log, log_url: str) -> None:
    append_orders(log, 2)
    one = log.append("orders", {"iban": SECRET}, type="t", ordering_key="c-1", headers={"a": "b"}, metadata={"m": 1})
    blob = log.append("orders", SECRET.encode(), type="t", content_type="application/octet-stream")
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    for _ in range(2):
        lease = log.claim("orders", "g", claimed_by="w")
        assert lease is not None
        told = {event.event_id: f"cannot pay {SECRET}" for event in lease.events if SECRET.encode() in event.payload}
        lease.settle(failed=told)
    done = log.erase(one.event_id, reason="gdpr-77", by="dpo")
    assert (done.stream, done.offset, done.in_log, done.files, done.already) == ("orders", one.offset, True, (), False)
    log.erase(str(blob.event_id), reason="gdpr-77")
    event, other = log.event("orders", one.event_id), log.event("orders", blob.event_id)
    assert event.erased and event.json() == {} and event.headers == {"a": "b"} and event.ordering_key == "c-1"
    assert event.metadata["m"] == 1 and not log.event("orders", 1).erased
    assert other.erased and other.payload == b"" and other.content_type == "application/octet-stream"
    delivery = log.delivery("orders", "g", one.event_id)
    assert delivery.last_error == "erased" and delivery.error_code and delivery.failures == 2
    with raw(log_url) as sql:
        for table in ("events", "deliveries", "attempt_log", "fingerprints", "audit"):
            assert SECRET not in str(sql(f"select * from penstock.{table}")), table
        ((detail,),) = sql("select detail from penstock.audit where action = 'erase' and by = 'dpo'")
    assert "gdpr-77" in str(detail)
    assert log.erase(one.event_id, reason="again").already
    assert {*claim_and_settle_all(log)} == {one.event_id, blob.event_id}, "an erased event is not delivered"
    with pytest.raises(penstock.UnknownEvent):
        log.erase(penstock.event_id("nobody"), reason="x")
    with pytest.raises(penstock.PenstockError, match="reason"):
        log.erase(one.event_id, reason="")


@pytest.mark.shows("O05")
@pytest.mark.parametrize("pruned", [False, True])
def test_a_payload_is_gone_from_archived_files(log: penstock.Log, tmp_path: Path, pruned: bool) -> None:
    append_orders(log, 10)
    one = log.append("orders", {"iban": SECRET}, type="t")
    append_orders(log, 10)
    for place in ("p", "q"):
        archive(log, "orders", tmp_path / place)
    assert len(left_in(tmp_path)) == 2
    if pruned:
        log.prune("orders", upto=log.end())
    done = log.erase(one.event_id, reason="gdpr")
    assert len(done.files) == 2 and done.in_log is not pruned
    assert left_in(tmp_path) == []
    assert log.erase(one.event_id, reason="gdpr").already
    for known in log.archives("orders"):
        manifest = orjson.loads(Place(known.place).read(f"{known.folder}/{record.MANIFEST}"))
        paths = {file["path"] for file in manifest["files"]}
        assert paths == {str(path.relative_to(known.place)) for path in Path(known.place).rglob("*.parquet")}
        assert manifest["version"] == known.version == 2
    if pruned:
        log.restore("orders")
        assert log.event("orders", one.event_id).erased and len(log.read("orders")) == 21


@pytest.mark.shows("O05")
def test_an_interrupted_erasure_is_completed(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_orders(log, 3)
    one = log.append("orders", {"iban": SECRET}, type="t")
    archive(log, "orders", tmp_path)

    class Killed(BaseException):
        pass

    def dies(*args: Any, **more: Any) -> None:
        raise Killed

    with monkeypatch.context() as dead, pytest.raises(Killed):
        dead.setattr(erasing, "_swap", dies)  # files are written, nothing is erased
        log.erase(one.event_id, reason="gdpr")
    assert not log.event("orders", one.event_id).erased
    with monkeypatch.context() as dead, pytest.raises(Killed):
        dead.setattr(Place, "drop", dies)  # the old file is replaced, and not deleted yet
        log.erase(one.event_id, reason="gdpr")
    assert log.event("orders", one.event_id).erased and left_in(tmp_path)
    assert log.erase(one.event_id, reason="gdpr").already and left_in(tmp_path) == []


@pytest.mark.shows("O05")
def test_copies_that_a_killed_erasure_left_keep_no_payload(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of a file with other events, too: when one of those is erased, no copy may keep its payload."""
    first = log.append("orders", {"n": 1}, type="t")
    second = log.append("orders", {"iban": SECRET}, type="t")
    archive(log, "orders", tmp_path)
    with monkeypatch.context() as dead, pytest.raises(KeyboardInterrupt):
        dead.setattr(erasing, "_drop", lambda written: None)  # nobody is left to do it
        dead.setattr(erasing, "_swap", Mock(side_effect=KeyboardInterrupt))
        log.erase(first.event_id, reason="gdpr")
    assert len(left_in(tmp_path)) == 2
    log.erase(second.event_id, reason="gdpr")
    assert left_in(tmp_path) == []
    log.erase(first.event_id, reason="gdpr")
    assert len([*tmp_path.rglob("*.parquet")]) == 1


@pytest.mark.shows("O05")
def test_what_a_killed_attempt_at_an_archive_left_keeps_no_payload(log: penstock.Log, tmp_path: Path) -> None:
    one = log.append("orders", {"iban": SECRET}, type="t")
    archive(log, "orders", tmp_path)
    (known,) = log.archives("orders")
    assert known.folder is not None
    kept = tmp_path / known.folder
    shutil.copytree(kept, kept.parent / f"_{kept.name}-0123abcd")  # another process wrote the same, and was killed
    assert len(left_in(tmp_path)) == 2
    log.erase(one.event_id, reason="gdpr")
    assert left_in(tmp_path) == [] and [path.name for path in kept.parent.iterdir()] == [kept.name]


@pytest.mark.shows("O05")
def test_nothing_is_erased_if_a_file_cannot_be_rewritten(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = log.append("orders", {"iban": SECRET}, type="t")
    for place in ("p", "q"):
        archive(log, "orders", tmp_path / place)
    files = sorted(tmp_path.rglob("*.parquet"))
    copies = []

    def full(*args: Any) -> str:
        if copies:
            raise OSError("no space left")
        copies.append(copy_erased(*args))
        return copies[0]

    copy_erased = archived_files.copy_erased
    with monkeypatch.context() as disk, pytest.raises(penstock.ArchiveUnavailable, match=files[1].name):
        disk.setattr(archived_files, "copy_erased", full)
        log.erase(one.event_id, reason="gdpr")
    with open(files[1], "r+b") as target:
        target.truncate(os.path.getsize(files[1]) - 1)
    with pytest.raises(penstock.ArchiveDamaged, match=files[1].name):
        log.erase(one.event_id, reason="gdpr")
    assert not log.event("orders", one.event_id).erased and sorted(tmp_path.rglob("*.parquet")) == files
    begun = log.append("others", {"iban": SECRET}, type="t")
    unfinished = record.begin(log.store, "others", str(tmp_path / "r"), before=None, upto=None, by=None)
    assert unfinished is not None
    with pytest.raises(penstock.InFlight, match="being written"):
        log.erase(begun.event_id, reason="gdpr")
    complete(log, unfinished)
    assert len(log.erase(begun.event_id, reason="gdpr").files) == 1
