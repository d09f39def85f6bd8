"""The file itself: how it is opened, shared, forked, checkpointed and refused."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from pathlib import Path

import pytest

import penstock
from penstock.errors import (
    EffectFailed,
    InvalidUrl,
    SchemaMissing,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreUnavailable,
)
from penstock.log.open import make_store
from penstock.stores import blocks
from penstock.stores.sqlite import checkpoint, connections, faults, schema
from penstock.stores.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/log.db"


def events(log: penstock.Log, count: int, size: int = 10) -> None:
    log.append_many("orders", [{"payload": {"n": n, "x": "y" * size}, "type": "made"} for n in range(count)])


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://log.db",
        "sqlite:///log.db?mode=ro",
        "sqlite:///file:log.db",
    ],
)
def test_a_url_must_name_a_file(url: str) -> None:
    with pytest.raises(InvalidUrl):
        make_store(url)


def test_urls_take_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///log.db", f"sqlite:///{tmp_path}/log.db"):
        store = make_store(url)
        assert store.url == f"sqlite:///{tmp_path}/log.db"


def test_a_link_and_its_file_are_one_log(tmp_path: Path, path: str) -> None:
    (tmp_path / "link.db").symlink_to(path)
    with penstock.open(f"sqlite:///{path}") as log, penstock.open(f"sqlite:///{tmp_path}/link.db") as same:
        events(log, 3)
        assert len(same.read("orders")) == 3


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no directory"):
        penstock.open(f"sqlite:///{tmp_path}/nowhere/log.db")


def test_a_file_that_is_not_a_database_is_left_unchanged(tmp_path: Path) -> None:
    text = "this is not a database " * 100
    (tmp_path / "notes.txt").write_text(text)
    with pytest.raises(StoreUnavailable, match="not a database"):
        penstock.open(f"sqlite:///{tmp_path}/notes.txt")
    assert (tmp_path / "notes.txt").read_text() == text
    with pytest.raises(StoreUnavailable):
        penstock.open(f"sqlite:///{tmp_path}")


def test_a_newer_schema_is_refused(path: str) -> None:
    penstock.open(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as db:
        db.execute("insert into penstock_schema_version (version, name) values (99, 'later')")
    db.close()
    with pytest.raises(SchemaTooNew):
        penstock.open(f"sqlite:///{path}")


def test_a_missing_schema_is_reported(path: str) -> None:
    with penstock.open(f"sqlite:///{path}", migrate=False) as log, pytest.raises(SchemaMissing):
        log.append("orders", {}, type="made")


def test_the_script_makes_the_same_schema(path: str, tmp_path: Path) -> None:
    penstock.open(f"sqlite:///{path}").close()
    what = "select type, name, sql from sqlite_master order by 1, 2"
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript(schema.script())
    known = sqlite3.connect(path)
    assert [row[:2] for row in other.execute(what)] == [row[:2] for row in known.execute(what)]
    other.close()
    known.close()
    store = make_store(f"sqlite:///{tmp_path}/other.db")
    assert store.migrate() == []
    store.close()


def test_every_connection_has_the_required_settings(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log, log.store.transaction(write=False) as tx:
        assert {row.name: row.setting for row in tx.rows("doctor.settings")} == {
            "journal_mode": "wal",
            "synchronous": "full",
            "sqlite_version": sqlite3.sqlite_version,
        }


def test_both_stores_have_the_same_blocks() -> None:
    """Verbs call blocks by name; each store has its own ways to append, copy and read."""
    own = {
        "horizon.announced",
        "horizon.replayed",
        "stage.copy",
        "claim.first",
        "jobs.claim_first",
        "claim.careful_lane",
    }
    own |= {"pipeline.make_staging", "pipeline.shrink_staging"}
    own |= {f"doctor.{name}" for name in ("may_see_rules", "rules", "snapshots", "unvacuumed", "wraparound")}
    missing = blocks.load("postgres").keys() - blocks.load("sqlite").keys() - own
    assert not {name for name in missing if not name.startswith(("append.", "home.", "read.", "wake."))}


# --- constraints that SQLite has its own ways around ------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "insert or replace into penstock_events (stream, event_id, event_type, payload) "
        "select stream, event_id, 'other', payload from penstock_events limit 1",
        "insert or replace into penstock_leases select * from penstock_leases limit 1",
        "insert or replace into penstock_deliveries select * from penstock_deliveries limit 1",
        "update or replace penstock_events set event_type = 'other'",
        "insert into penstock_events (stream, event_id, event_type, payload, headers) "
        "values ('orders', '00000000-0000-0000-0000-000000000000', 'made', x'00', 'no json')",
    ],
)
def test_replace_cannot_bypass_the_constraints(path: str, statement: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        events(log, 3)
        log.create_group("orders", "g")
        lease = log.claim("orders", "g", claimed_by="w")
        assert lease is not None
        lease.settle(failed={lease.events[0].event_id: "no"})
    db = sqlite3.connect(path)
    tables = ("events", "leases", "deliveries")
    before = [db.execute(f"select * from penstock_{table}").fetchall() for table in tables]
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    db.rollback()
    assert [db.execute(f"select * from penstock_{table}").fetchall() for table in tables] == before
    db.close()


def test_a_pruned_id_may_be_appended_again(path: str) -> None:
    one = penstock.event_id("one")
    with penstock.open(f"sqlite:///{path}") as log:
        for duplicate in (False, True):
            assert log.append("orders", {}, type="made", event_id=one).duplicate is duplicate
        assert log.prune("orders", upto=1).count == 1
        again = log.append("orders", {}, type="made", event_id=one)
        assert not again.duplicate
        assert again.offset > 1, "an offset was used twice"


def test_an_empty_log_keeps_its_horizon(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        events(log, 5)
        assert log.prune("orders", upto=5).count == 5
        assert log.stats().horizon == 5
        log.create_group("orders", "late", start="end")
        events(log, 1)
        lease = log.claim("orders", "late", claimed_by="w")
        assert lease is not None
        assert [event.offset for event in lease.events] == [6]


@pytest.mark.parametrize("statement", ["commit", " -- first\n/* then */ ROLLBACK", "pragma user_version = 7", "; end"])
def test_a_users_statement_cannot_end_the_settle(path: str, statement: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        events(log, 3)
        log.create_group("orders", "g")
        lease = log.claim("orders", "g", claimed_by="w")
        assert lease is not None
        with pytest.raises(EffectFailed):
            lease.settle(execute=[(statement, ())])
        assert lease.settle().published == 3


def test_a_trigger_that_rolls_back_fails_the_whole_settle(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        db = sqlite3.connect(path)
        db.execute("create table once (id integer primary key)")
        db.execute("create trigger never before insert on once begin select raise(rollback, 'never'); end")
        db.close()
        events(log, 3)
        log.create_group("orders", "g")
        lease = log.claim("orders", "g", claimed_by="w")
        assert lease is not None
        twice = ("insert into once values (1)", ())
        with pytest.raises(EffectFailed):
            lease.settle(effects={event: {"execute": [twice]} for event in lease.events})
        db = sqlite3.connect(path)
        assert db.execute("select count(*) from once").fetchone() == (0,)
        db.close()
        assert lease.settle().published == 3


# --- many connections -------------------------------------------------------------------------------------------------


def test_a_writer_that_does_not_end_makes_others_fail_with_store_busy(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "BUSY_SECONDS", 0.2)
    with penstock.open(f"sqlite:///{path}") as log:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("begin immediate")
        assert log.read("orders") == [], "readers must not wait"
        with pytest.raises(StoreBusy):
            log.append("orders", {}, type="made")
        db.execute("rollback")
        db.close()
        assert log.append("orders", {}, type="made").offset == 1


def test_a_transaction_inside_a_transaction_has_its_own_connection(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        with log.store.transaction():
            events_before = log.read("orders")
        assert events_before == []


def test_ended_threads_leave_no_connection(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        for _ in range(20):
            thread = threading.Thread(target=events, args=(log, 5))
            thread.start()
            thread.join()
        assert len(log.read("orders")) == 100
        links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
        # Our own, and one that is kept for reuse: closing it would drop the locks of the first.
        assert sum(str(link.readlink()) == path for link in links if link.is_symlink()) <= 2


def test_threads_can_write_concurrently(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        threads = [threading.Thread(target=events, args=(log, 5)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(log.read("orders")) == 100


def test_a_closed_log_is_closed_in_every_thread(path: str) -> None:
    log = penstock.open(f"sqlite:///{path}")
    events(log, 1)
    log.close()
    with pytest.raises(StoreClosed):
        log.read("orders")
    assert not Path(f"{path}-wal").exists(), "closing the last connection must remove the write-ahead log"


def test_a_forked_child_has_its_own_locks(path: str) -> None:
    """The parent closes everything while the child writes; without its own locks the child would lose its writes."""
    with penstock.open(f"sqlite:///{path}") as log:
        events(log, 10)
        ready, told = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            try:
                events(log, 10)
                os.write(ready[1], b"x")
                os.read(told[0], 1)
                events(log, 10)
                os._exit(0)
            finally:
                os._exit(1)
        os.read(ready[0], 1)
        events(log, 10)
    os.write(told[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for end in (*ready, *told):
        os.close(end)
    with penstock.open(f"sqlite:///{path}") as log:
        assert len(log.read("orders")) == 40


def test_a_fork_inside_a_transaction_harms_neither_process(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        events(log, 1)
        with log.store.transaction() as tx:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            assert tx.horizon() == 1
        events(log, 1)
        assert len(log.read("orders")) == 2


def test_nobody_forks_while_a_connection_is_closed() -> None:
    """SQLite holds a lock of the whole process meanwhile, which a child would wait for without end."""
    forks: list[bool] = []

    class Closing:
        def close(self) -> None:
            asking = threading.Thread(target=lambda: forks.append(connections._gate.acquire(blocking=False)))
            asking.start()
            asking.join()

    connections.Held(Closing(), once=False).close()  # type: ignore[arg-type]
    assert forks == [False]


# --- the write-ahead log ----------------------------------------------------------------------------------------------


def test_the_write_ahead_log_stays_short(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        sizes = []
        for _ in range(20):
            events(log, 1000, size=1000)
            sizes.append(os.path.getsize(f"{path}-wal"))
        assert max(sizes) < 3 * checkpoint.LONG


def test_only_one_process_checkpoints_at_a_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one process holds the lock file no other one checkpoints; appends continue."""
    import fcntl

    with penstock.open(f"sqlite:///{path}") as log:
        lock = os.open(f"{path}-checkpoint.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(10):
            events(log, 1000, size=1000)
        assert os.path.getsize(f"{path}-wal") > 2 * checkpoint.LONG
        os.close(lock)
        monkeypatch.setattr(checkpoint, "_AGAIN", 0)  # a failed checkpoint is retried after a second
        for _ in range(2):
            events(log, 1)
        assert os.path.getsize(f"{path}-wal") < checkpoint.LONG


def test_a_long_reader_does_not_block_writers(path: str) -> None:
    with penstock.open(f"sqlite:///{path}") as log:
        events(log, 10)
        assert isinstance(log.store, SqliteStore)
        with log.store.transaction(write=False) as tx:
            assert tx.horizon() == 10
            for _ in range(5):
                events(log, 1000, size=1000)
            assert tx.horizon() == 10, "a reader must see one snapshot"
        assert log.stats().horizon == 5010


@pytest.mark.shows("K30")
@pytest.mark.parametrize("block", ["settle.insert_rows", "settle.update_rows"])
def test_an_outcome_is_taken_apart_once_however_many_events_share_it(path: str, block: str) -> None:
    """Otherwise settling 4,000 equal failures takes longer than their lease."""
    with penstock.open(f"sqlite:///{path}") as log:
        statements = log.store.blocks[block].split(";;")
        assert statements
    with sqlite3.connect(path) as connection:
        for text in statements:
            asked = "explain query plan " + text
            names = {name: None for name in re.findall(r":(\w+)", text)}
            plan = [str(row[3]) for row in connection.execute(asked, {**names, "rows": "[]", "offsets": "[]"})]
            assert "MATERIALIZE o" in plan, plan
    connection.close()
