"""PSPF's streams move in: what the group was not given or has not acknowledged waits, and dead letters are DEAD."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import InvalidSource, SourceUnavailable
from penstock.imports import run, valkey
from penstock.imports.pspf import Pspf
from penstock.imports.pspf_state import StateFile
from tests.support.import_sources import claimable, import_all, target
from tests.support.server_process import free_port
from tests.support.valkey_server import ValkeyServer

pytestmark = [pytest.mark.shows("R13"), pytest.mark.clause("003-10", "003-11")]
MOVED = 1_700_000_000.5
SECRET = "do-not-show-me"


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer(SECRET) as running:
        yield running


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[Any]:
    client = server.client()
    client.flushall()
    yield client
    client.close()


def fill(client: Any, entries: int = 60) -> list[str]:
    """Add entries; two thirds are given to the group, most of these are acknowledged, and some become dead letters."""
    ids = [
        client.xadd("clicks", {"event_type": "click.made", "n": n, "deep": '{"a": [true, null]}', "text": "é"}).decode()
        for n in range(entries)
    ]
    client.xgroup_create("clicks", "counter", "0")
    given = client.xreadgroup("counter", "w-1", {"clicks": ">"}, count=entries * 2 // 3)[0][1]
    for number, (entry, fields) in enumerate(given):
        if number % 10 == 5:
            letter = {**fields, "_error": f"boom {number}", "_original_stream": "clicks", "_original_msg_id": entry}
            client.xadd("clicks-dlq", {**letter, "_moved_timestamp": str(MOVED)})
        if number % 7:
            client.xack("clicks", "counter", entry)
        elif number % 2:
            client.hset("pspf:retries:counter:clicks", entry, 2)
    return ids


def pspf(server: ValkeyServer, **options: Any) -> Pspf:
    wanted = options.pop("target", None) or target("clicks", "count")
    return Pspf(server.url, "clicks", "counter", wanted, **options)


def states(log: penstock.Log) -> dict[int, str]:
    return {one.json()["n"]: str(one.state) for one in log.deliveries("clicks", "count", limit=1_000)}


def expected(entries: int = 60) -> dict[int, str]:
    found = {}
    for n in range(entries):
        if n >= entries * 2 // 3 or n % 7 == 0:
            found[n] = "PENDING"
        else:
            found[n] = "DEAD" if n % 10 == 5 else "PUBLISHED"
    return found


def test_every_entry_has_the_state_that_the_group_gives_it(
    log: penstock.Log, server: ValkeyServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 13)
    monkeypatch.setattr(valkey, "PAGE", 7)
    ids = fill(client)
    report = import_all(log, pspf(server))
    assert states(log) == expected() and report.complete and report.tally.copied == 60
    dead = log.deliveries("clicks", "count", state="DEAD")
    assert {one.last_error for one in dead} == {"boom 5", "boom 15", "boom 25"}
    assert {one.dead_at for one in dead} == {datetime.fromtimestamp(MOVED, UTC)}
    retried = {one.json()["n"]: one.total_attempts for one in log.deliveries("clicks", "count", state="PENDING")}
    assert retried[7] == retried[21] == 2 and retried[50] == 0
    one = next(one for one in log.read("clicks") if one.json()["n"] == 8)
    assert one.json() == {"event_type": "click.made", "n": 8, "deep": {"a": [True, None]}, "text": "é"}
    assert one.event_type == "click.made" and one.metadata["penstock-import"]["entry"] == ids[8]
    assert len(claimable(log, "clicks", "count")) == sum(state == "PENDING" for state in expected().values())


def test_dead_letters_whose_entries_are_gone_are_taken_from_the_queue_of_dead_letters(
    log: penstock.Log, server: ValkeyServer, client: Any
) -> None:
    fill(client)
    client.xtrim("clicks", maxlen=30, approximate=False)
    report = import_all(log, pspf(server))
    kept = {n: state for n, state in expected().items() if n >= 30 or state == "DEAD"}
    assert states(log) == kept and report.complete
    assert report.notes == {"gone": 5}, "0, 7, 14, 21 and 28 were acknowledged by nobody"


def test_dead_letters_of_another_group_can_be_left_out(log: penstock.Log, server: ValkeyServer, client: Any) -> None:
    fill(client)
    import_all(log, pspf(server, letters=False))
    assert states(log) == {n: "PUBLISHED" if said == "DEAD" else said for n, said in expected().items()}


def test_an_interrupted_import_goes_on(
    log: penstock.Log, server: ValkeyServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 2)
    fill(client)
    for _ in range(20):
        with pytest.raises(KeyboardInterrupt):
            run.run(log, source := pspf(server), skip_published=False, by="ada", show=_interrupt)
        source.close()
    report = import_all(log, pspf(server))
    assert states(log) == expected() and report.complete and report.tally.known == 0


def test_an_event_that_was_added_twice_keeps_the_state_of_the_first(
    log: penstock.Log, server: ValkeyServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 2)
    ids = [client.xadd("clicks", {"event_type": "t", "event_id": one, "n": 1}) for one in ("a", "b", "c", "a", "a")]
    client.xgroup_create("clicks", "counter", "0")
    client.xreadgroup("counter", "w-1", {"clicks": ">"})
    client.xack("clicks", "counter", *ids[1:])
    report = import_all(log, pspf(server))
    assert (report.tally.copied, report.tally.known) == (5, 2)
    assert [str(one.state) for one in log.deliveries("clicks", "count")] == ["PENDING", "PUBLISHED", "PUBLISHED"]
    assert len(claimable(log, "clicks", "count")) == 1


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_ids_and_payloads_of_their_own_stay_and_binary_fields_survive(
    log: penstock.Log, server: ValkeyServer, client: Any
) -> None:
    ours = "0198c0de-0000-7000-8000-000000000001"
    client.xadd("clicks", {"event_id": ours, "event_type": "t", "payload": b'{"big":12345678901234567890}'})
    client.xadd("clicks", {"event_id": "c-7", "payload": b"\xff\x00"})
    client.xadd("clicks", {"raw": b"\xff", "nan": "NaN", "number": "1e5"})
    client.xgroup_create("clicks", "counter", "0")
    import_all(log, pspf(server, default_type="click"))
    first, second, third = log.read("clicks")
    assert str(first.event_id) == ours and first.payload == b'{"big":12345678901234567890}'
    assert second.payload == b"\xff\x00" and second.metadata["penstock-id"] == "c-7" and second.event_type == "click"
    assert third.json() == {"raw": "\\xff", "nan": "NaN", "number": 1e5}


def test_odd_state_is_skipped_before_anything_waits_for_it(
    log: penstock.Log, server: ValkeyServer, client: Any, tmp_path: Path
) -> None:
    fill(client)
    with closing(sqlite3.connect(tmp_path / "state.db")) as file:
        file.execute("create table kv_store (key text, value blob, expiry)")
        rows: list[Any] = [("half", '"\\ud800"', None), ("huge", str(2**70), None), ("never", "1", "nan")]
        rows += [("nul", '"a\\u0000b"', None), ("ever", "1", 1e300), ("endless", "2", float("inf"))]
        file.executemany("insert into kv_store values (?, ?, ?)", rows)
        file.execute("insert into kv_store values (cast(x'ff41' as text), '1', null)")
        file.commit()
    state = StateFile(str(tmp_path / "state.db"))
    report = import_all(log, pspf(server, target=target("clicks", "count", keyed=True), state=state))
    assert report.notes == {"gone": 0, "state": 3, "state_skipped": 4}
    assert log.state("clicks", "count", "ever") == {"value": 1} and log.state("clicks", "count", "half") == {}
    assert log.state("clicks", "count", "nul") == {"value": "a\0b"}


def test_state_becomes_keyed_state(log: penstock.Log, server: ValkeyServer, client: Any, tmp_path: Path) -> None:
    fill(client)
    with closing(sqlite3.connect(tmp_path / "state.db")) as file:
        file.execute("create table kv_store (key text primary key, value blob, expiry real)")
        rows: list[Any] = [("ada:total", b"7", None), ("ada:seen", b'{"a": [1]}', 4e9), ("bob:total", b"1", 1.0)]
        rows += [("odd", b"1", None), ("eve:bytes", b"\xff", None), (f"{'k' * 600}:n", b"1", None)]
        file.executemany("insert into kv_store values (?, ?, ?)", rows)
        file.commit()
    state = StateFile(str(tmp_path / "state.db"), "{key}:{name}")
    report = import_all(log, pspf(server, target=target("clicks", "count", keyed=True), state=state))
    assert report.notes == {"gone": 0, "state": 2, "state_skipped": 4}
    assert log.state("clicks", "count", "ada") == {"total": 7, "seen": {"a": [1]}}
    assert log.state("clicks", "count", "bob") == {}
    assert states(log) == expected()


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be read as one", b""])
def test_a_file_that_holds_no_state_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.db").write_bytes(content * 100)
    with pytest.raises(InvalidSource, match=r"state\.db (cannot be read|has no table kv_store)"):
        list(StateFile(str(tmp_path / "state.db")).pages())
    with pytest.raises(InvalidSource, match="There is no file"):
        StateFile(str(tmp_path / "none.db"))
    with pytest.raises(penstock.InvalidInput, match="has to name"):
        StateFile(str(tmp_path / "state.db"), "{name}")


def test_hostile_entries_are_taken_or_rejected_and_stop_nothing(
    log: penstock.Log, server: ValkeyServer, client: Any
) -> None:
    client.execute_command("XADD", "clicks", "9999999999999999-1", "event_type", "t", "n", "1")
    for number, fields in enumerate(
        (
            {"event_id": "a\0b", "event_type": "t"},
            {"event_type": "a\0b"},
            {"key": "k" * 600},
            {"payload": b"x" * 1_048_577},
            {"deep": "[" * 5_000, "digits": "1" * 5_000, "odd": '"\\ud800"', "": "no name"},
            {"event_type": "t" * 200},
        ),
        start=2,
    ):
        client.xadd("clicks", fields, id=f"9999999999999999-{number}")
    client.xadd("clicks-dlq", {"_original_msg_id": "nonsense", "_error": "a\0b", "_moved_timestamp": "1e99"})
    client.xadd("clicks-dlq", {"_original_msg_id": f"{2**64}-0", "_error": "a\0b"})
    client.xadd("clicks-dlq", {"_error": b"\xff", "event_type": "t"})
    client.xgroup_create("clicks", "counter", "0")
    client.xreadgroup("counter", "w-1", {"clicks": ">"}, count=1)
    client.hset("pspf:retries:counter:clicks", "9999999999999999-1", "9" * 5_000)
    report = import_all(log, pspf(server))
    assert report.complete and report.tally.rejected == 5 and len(log.read("clicks.rejected")) == 5
    odd = next(one for one in log.read("clicks") if b"no name" in one.payload)
    assert odd.json()["digits"] == "1" * 5_000 and odd.json()["odd"] == '"\\ud800"'
    assert {one.last_error for one in log.deliveries("clicks", "count", state="DEAD")} == {"a\\0b", "\\xff"}


def test_a_source_that_is_not_there_is_said_without_its_password(server: ValkeyServer, client: Any) -> None:
    with pytest.raises(InvalidSource, match="There is no stream 'clicks'"):
        pspf(server)
    fill(client)
    with pytest.raises(InvalidSource, match="has no group 'nobody'; there are counter"):
        Pspf(server.url, "clicks", "nobody", target())
    wrong = server.url.replace(SECRET, "wrong-one")
    for url in (wrong, f"valkey://:{SECRET}@127.0.0.1:{free_port()}/0", f"ftp://:{SECRET}@here/0"):
        with pytest.raises((SourceUnavailable, InvalidSource)) as raised:
            Pspf(url, "clicks", "counter", target())
        assert SECRET not in str(raised.value) and "wrong-one" not in str(raised.value)
