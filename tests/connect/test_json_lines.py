"""`JsonLines` on a real file system, and `Callable`."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.connect import Callable as CallablePublisher
from penstock.connect import JsonLines, Result
from tests.support.messages import kinds, publish, trial_of
from tests.support.running import PYTHONPATH, Running
from tests.support.targets import in_lines
from tests.support.waiting import wait_until

OK = ("ok", "")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.jsonl"


def test_a_line_that_a_crash_cut_off_is_removed_by_the_next_write(path: Path) -> None:
    publisher = JsonLines(path)
    trial = trial_of(publisher)
    first, lost, again = trial.message(), trial.message(b"x" * 200_000), trial.message()
    publish(publisher, first, lost)
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) - 150_000, whole.index(b"\n") + 2):
        path.write_bytes(whole[:size])
        assert kinds(publisher, again) == [OK]
        assert [one.id for one in in_lines(path.read_bytes().splitlines(True))] == [first.id, again.id]


@pytest.mark.shows("R03")
def test_a_full_disk_and_a_missing_folder_are_unavailable_and_leave_no_half_line(path: Path) -> None:
    publisher = JsonLines(path.parent / "later" / "orders.jsonl")
    message = trial_of(publisher).message(b"x" * 10_000)
    assert kinds(publisher, message) == [("unavailable", "ENOENT")]
    (path.parent / "later").mkdir()
    assert kinds(publisher, message) == [OK]

    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    publisher = JsonLines(path)
    small = trial_of(publisher).message()
    publish(publisher, small)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5_000, before[1]))
    try:
        assert kinds(publisher, small, message) == [("unavailable", "EFBIG")] * 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(in_lines(path.read_bytes().splitlines(True))) == 1
    assert kinds(publisher, message) == [OK]


def _is_waited_for(inode: int) -> bool:
    return any("->" in one and f":{inode} " in one for one in Path("/proc/locks").read_text().splitlines())


@pytest.mark.shows("R02")
@pytest.mark.parametrize("made", [True, False], ids=["a new file", "no file"])
def test_a_file_that_is_rotated_while_a_writer_waits_for_it_keeps_its_lines(path: Path, made: bool) -> None:
    publisher = JsonLines(path)
    first, second = trial_of(publisher).message(), trial_of(publisher).message()
    publish(publisher, first)
    moved = path.with_suffix(".1")
    with path.open("ab") as other, ThreadPoolExecutor() as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = pool.submit(kinds, publisher, second)
        wait_until(lambda: _is_waited_for(path.stat().st_ino), "the writer to wait for the lock")
        path.rename(moved)
        if made:
            path.touch()
        fcntl.flock(other, fcntl.LOCK_UN)
        assert waiting.result() == [OK]
    for file, message in ((moved, first), (path, second)):
        assert [one.id for one in in_lines(file.read_bytes().splitlines(True))] == [message.id]


_WRITER = """
import sys
from penstock.connect import JsonLines
from tests.support.messages import publish, trial_of
publisher = JsonLines(sys.argv[1])
trial = trial_of(publisher)
for _ in range(50):
    publish(publisher, *(trial.message(sys.argv[2].encode() * 500) for _ in range(4)))
"""


def test_two_processes_write_whole_lines(path: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    environment = {"PYTHONPATH": PYTHONPATH}
    first, second = (
        Running(tmp_path / name, sys.executable, "-c", _WRITER, path, name, environment=environment) for name in "ab"
    )
    with first, second:
        assert (first.wait(), second.wait()) == (0, 0), first.err + second.err
    found = in_lines(path.read_bytes().splitlines(True))
    assert sorted(one.payload[:1] for one in found) == [b"a"] * 200 + [b"b"] * 200


def test_standard_output(capfdbinary: Any) -> None:
    publisher = JsonLines("-", topic="log")
    message = trial_of(publisher).message(b'{"n": 1}', key="k", headers=[("a", "1"), ("a", "2")])
    assert kinds(publisher, message) == [OK]
    row = json.loads(capfdbinary.readouterr().out)
    assert (row["id"], row["topic"], row["key"], row["payload"]) == (message.id, "log", "k", {"n": 1})
    assert row["headers"] == {"a": ["1", "2"]}


def test_a_reader_that_went_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        publisher = JsonLines("-")
        assert [kind for kind, _ in kinds(publisher, trial_of(publisher).message())] == ["unavailable"]
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())  # what it kept can be flushed now


@pytest.mark.shows("R03")
def test_standard_output_on_a_full_disk_is_unavailable_and_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    publisher = JsonLines("-")
    first, second = trial_of(publisher).message(), trial_of(publisher).message()
    with open("/dev/full", "w") as full, path.open("w") as file:
        monkeypatch.setattr(sys, "stdout", full)
        assert kinds(publisher, first) == [("unavailable", "ENOSPC")]
        os.dup2(file.fileno(), full.fileno())  # there is room again
        assert kinds(publisher, second) == [OK]
        monkeypatch.undo()
    assert [one.id for one in in_lines(path.read_bytes().split())] == [second.id]


# --- a function -------------------------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[Any], Any]:
    def function(message: Any) -> Any:
        raise error

    return function


@pytest.mark.shows("R01", "R06")
@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda message: None, ("ok", "", None)),
        (lambda message: Result.skipped("not ours"), ("skipped", "skipped", None)),
        (lambda message: Result.retry("busy", "later", 3), ("retry", "busy", 3)),
        (raising(ValueError("bad")), ("retry", "ValueError", None)),
        (raising(penstock.Permanent("never")), ("permanent", "Permanent", None)),
        (raising(penstock.RetryLater(7, "later")), ("retry", "RetryLater", 7)),
        (raising(penstock.Unavailable("down")), ("unavailable", "unavailable", None)),
        (raising(ConnectionResetError("cut")), ("unavailable", "ConnectionResetError", None)),
    ],
)
def test_what_a_function_does_is_the_outcome_of_its_message(function: Any, wanted: Any) -> None:
    publisher = CallablePublisher(function)
    (result,) = publish(publisher, trial_of(publisher).message())
    assert (result.kind, result.code, result.after_seconds) == wanted


def test_the_rest_of_a_call_is_not_tried_when_the_target_is_down() -> None:
    calls = []

    def function(message: Any) -> None:
        calls.append(message)
        error = penstock.Unavailable("down")
        error.after_seconds = 30
        raise error

    publisher = CallablePublisher(function)
    trial = trial_of(publisher)
    results = publish(publisher, *(trial.message() for _ in range(10)))
    assert {(one.kind, one.after_seconds) for one in results} == {("unavailable", 30)} and len(calls) == 1


@pytest.mark.parametrize("answer", ["ok", True, 7])
def test_a_function_that_returns_something_else_is_told_so(answer: Any) -> None:
    publisher = CallablePublisher(lambda message: answer)
    with pytest.raises(penstock.InvalidInput, match="None or a Result"):
        publisher.publish([trial_of(publisher).message()])
    with pytest.raises(penstock.InvalidInput, match="is not a function"):
        CallablePublisher("print")  # type: ignore[arg-type]
