"""A read-only file can be inspected; writes are refused with a clear error."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import SchemaTooOld, StoreReadOnly
from penstock.stores import blocks
from tests.support import unprivileged
from tests.support.raw_sql import raw


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that an unprivileged user may enter."""
    made = unprivileged.private_directory("penstock-read-only-")
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def as_nobody(work: Callable[[], None]) -> None:
    """Run as an unprivileged user, because root may write everything."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                dropped = unprivileged.identity()
                os.setgroups([])
                os.setgid(dropped["group"])
                os.setuid(dropped["user"])
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0


def make(folder: Path) -> str:
    url = f"sqlite:///{folder}/log.db"
    with penstock.open(url) as log:
        log.append_many("orders", [{"payload": {"n": n}, "type": "t", "ordering_key": f"k{n}"} for n in range(5)])
        log.create_group("orders", "g")
        lease = log.claim("orders", "g", limit=3, claimed_by="w")
        assert lease is not None
        lease.settle(dead={lease.events[0].event_id: "no"})
    return url


def look(url: str) -> None:
    with penstock.open(url) as log:
        assert [event.json()["n"] for event in log.read("orders")] == [0, 1, 2, 3, 4]
        assert [str(one.state) for one in log.deliveries("orders", "g")] == [
            "DEAD",
            *["PUBLISHED"] * 2,
            *["PENDING"] * 2,
        ]
        (stats,) = log.stats().groups
        assert (stats.dead, stats.published, stats.pending) == (1, 2, 2)
        assert log.delivery("orders", "g", log.event("orders", 1).event_id).last_error == "no"
        assert log.streams() == ["orders"] and len(log.groups()) == 1 and not log.drained("orders", "g")
        for refused in (
            lambda: log.append("orders", {}, type="t"),
            lambda: log.append_many("orders", [{"payload": {}, "type": "t"}]),
            lambda: log.claim("orders", "g", claimed_by="w"),
            lambda: log.redrive("orders", "g", all=True),
        ):
            with pytest.raises(StoreReadOnly) as caught:
                refused()
            assert caught.value.code == "store_read_only" and caught.value.hint


def protect_both(folder: Path) -> None:
    (folder / "log.db").chmod(0o444)
    folder.chmod(0o555)


PLACES: dict[str, Callable[[Path], None]] = {
    "file": lambda folder: (folder / "log.db").chmod(0o444),
    "directory": lambda folder: folder.chmod(0o555),
    "both": protect_both,
}


@pytest.mark.shows("K39")
@pytest.mark.parametrize("place", PLACES)
def test_a_read_only_file_can_be_inspected(folder: Path, place: str) -> None:
    url = make(folder)
    before = sorted(folder.iterdir())
    PLACES[place](folder)
    as_nobody(lambda: look(url))
    folder.chmod(0o755)
    if place != "file":
        assert sorted(folder.iterdir()) == before
    with penstock.open(url) as log:  # and it can be written again
        log.append("orders", {"n": 5}, type="t")
        assert len(log.read("orders")) == 6


@pytest.mark.shows("K39")
def test_a_read_only_file_can_be_read_while_another_process_writes(folder: Path) -> None:
    """The writer's files are next to the database, so its commits are visible."""
    url = make(folder)
    with penstock.open(url) as writer:
        writer.append("orders", {"n": 5}, type="t")
        for one in folder.iterdir():
            one.chmod(0o644)
        folder.chmod(0o555)

        def look_again() -> None:
            with penstock.open(url) as log:
                assert len(log.read("orders")) == 6

        as_nobody(look_again)


@pytest.mark.shows("K39")
def test_the_command_line_shows_a_read_only_file(folder: Path) -> None:
    from penstock.cli.app import run

    url = make(folder)

    def look_at_all() -> None:
        for command in (["events", "orders"], ["show", "orders", "1"], ["stats"], ["dead", "orders", "g"]):
            assert run([*command, "--url", url, "--json"]) == 0, command

    look_at_all()  # loads modules that nobody may not be able to read
    PLACES["both"](folder)

    def commands() -> None:
        look_at_all()
        assert run(["append", "orders", "--type", "t", "--payload", "{}", "--url", url, "--json"]) == 1

    as_nobody(commands)


def test_an_older_schema_is_not_upgraded(folder: Path) -> None:
    url = f"sqlite:///{folder}/log.db"
    with raw(url) as sql:
        sql.connection.execute("create table penstock_schema_version (version integer primary key, name text)")
        for number, name, text in blocks.migrations("sqlite")[:6]:
            sql.connection.executescript(text)
            sql.connection.execute("insert into penstock_schema_version values (?, ?)", (number, name))
    PLACES["both"](folder)

    def opened() -> None:
        with pytest.raises(SchemaTooOld):
            penstock.open(url)

    as_nobody(opened)
