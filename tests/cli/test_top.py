"""`penstock top`: one picture in a pipe, a live view with keys on a terminal, and little to do for the database."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as library
from penstock.cli.top.live import Top
from penstock.cli.top.sample import Sampler
from penstock.cli.top.view import SORTS, View
from penstock.errors import StoreUnavailable
from penstock.log.runs import NewRun
from tests.cli.conftest import Command
from tests.cli.test_cli import fill, work
from tests.support.running import penstock as start

_CONTROL = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")
pytestmark = pytest.mark.shows("O01")


def busy(url: str) -> None:
    """Two groups of orders and one of payments: one paused, one with a retry and an open lease, one with nothing."""
    ids = fill(url)
    work(url, dead=ids[:2])
    with library.open(url) as log:
        log.create_group("orders", "ledger", ordering="key")
        failed = log.claim("orders", "ledger", limit=1, claimed_by="w-7")
        assert failed is not None
        failed.settle(failed={failed.events[0].event_id: "boom"})
        assert log.claim("orders", "ledger", limit=1, claimed_by="w-8")
        log.append("payments", {}, type="t")
        log.create_group("payments", "mail")
        log.pause("orders", "fraud", reason="ten solo deaths")
        log.start_run(NewRun("host/7", "app.py", "local", "1", "host", 7, ["orders/ledger"]))


# --- plain -----------------------------------------------------------------------------------------------------------


def test_one_document(penstock: Command, log_url: str) -> None:
    busy(log_url)
    told = penstock("top").json
    assert (told["events"], told["horizon"]) == (7, 7)
    groups = {f"{one['stream']}/{one['group']}": one for one in told["groups"]}
    assert [*groups] == ["orders/fraud", "orders/ledger", "payments/mail"]
    assert (groups["orders/fraud"]["dead"], groups["orders/fraud"]["paused"]) == (2, True)
    assert (groups["orders/ledger"]["retrying"], groups["orders/ledger"]["claimed"]) == (1, 1)
    assert "ten solo deaths" in told["problems"][0]["what"]
    assert [(one["name"], one["state"]) for one in told["runs"]] == [("host/7", "running")]
    assert [one["group"] for one in penstock("top", "--sort", "lag", "--filter", "ORD").json["groups"]] == [
        "ledger",
        "fraud",
    ]


def test_one_picture_in_a_pipe(command: Command, log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(log_url)
    for width in (60, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = command("top", "--url", log_url)
        assert shown.code == 0 and "\x1b" not in shown.out and "q quit" not in shown.out
        lines = shown.out.splitlines()
        assert max(map(len, lines)) <= width
        assert re.match(r"! orders/fraud: .*ten solo", next(line for line in lines if line.startswith("!")))
        assert re.search(r"orders/fraud ⏸ +[\d.]+/s +0 .* 2", shown.out)
        assert re.search(r"\n +\d+ .*local +orders/ledger +\S+ ago +running", shown.out)
    assert re.search(r"retry +dead", shown.out)


@pytest.mark.empty_place
def test_an_empty_log(command: Command, log_url: str) -> None:
    library.open(log_url).close()
    shown = command("top", "--once", "--url", log_url).out
    assert "No problems." in shown and "There are no groups yet" in shown and "Nobody is at work" in shown


def test_wrong_usage(command: Command) -> None:
    for options in (("--sort", "colour"), ("--interval", "0")):
        assert command("top", *options, "--json").error == "usage"


def test_looking_takes_as_many_statements_for_many_groups_as_for_few(log_url: str) -> None:
    said: list[str] = []

    def hook(when: str, block: str) -> None:
        if when == "before":
            said.append(block)

    counts = []
    with library.open(log_url) as log:
        log.append("orders", {}, type="t")
        for round_ in range(2):
            for number in range(1 + 8 * round_):
                log.create_group("orders", f"g{round_}-{number}", start="end")
            with library.open(log_url, hook=hook) as watched:
                said.clear()
                Sampler(watched).look()
                counts.append(len(said))
    assert counts[0] == counts[1] < 25, counts


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys(log_url: str) -> None:
    busy(log_url)
    with library.open(log_url) as log:
        view, sampler = View(log_url), Sampler(log)
        top = Top(sampler, view, 1.0)
        top._look()
        sample = sampler.look()
        seen = []
        for _ in SORTS:
            assert top.press("s")
            seen.append(view.sort)
        assert seen == [*SORTS[1:], SORTS[0]]
        for key in ("/", "m", "a", "x", "backspace", "enter"):
            assert top.press(key)
        assert view.filter == "ma" and [one.name for one in view.chosen(sample)] == ["payments/mail"]
        assert top.press("/") and top.press("q") and view.filter == "q", "a letter of a filter is no command"
        assert top.press("escape") and view.filter == "" and not view.typing
        assert top.press("down") and top.press("j") and top.press("up") and view.place == 1
        assert top.press("enter") and view.opened == ("orders", "ledger")
        opened = sampler.look(view.opened)
        assert opened.detail is not None and len(opened.detail.lanes) == 8 and len(opened.detail.leases) == 1
        assert top.press("escape") and view.opened is None
        assert top.press("p") and view.paused
        before = top._sample
        top._look()
        assert top._sample is before, "a paused view does not look"
        assert not top.press("q") and not top.press("interrupt")


def test_a_database_that_is_away_leaves_the_last_picture(log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(log_url)
    with library.open(log_url) as log:
        top = Top(Sampler(log), View(log_url), 1.0)
        top._look()

        def gone(self: Sampler, group: object = None) -> None:
            raise StoreUnavailable("The database is away.")

        monkeypatch.setattr(Sampler, "look", gone)
        top._look()
        top._console.width = 100
        with top._console.capture() as captured:
            top._console.print(top._drawn())
    assert "! The database is away." in captured.get() and "orders/fraud" in captured.get()


@contextmanager
def on_a_terminal(directory: Path, url: str, width: int) -> Iterator[tuple[Any, int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, width, 0, 0))
    streams: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    environment = {"TERM": "xterm", "COLUMNS": str(width), "LINES": "30"}
    try:
        with start(directory, "top", "--interval", "0.2", "--url", url, environment=environment, **streams) as running:
            yield running, ours
    finally:
        os.close(theirs)
        os.close(ours)


def read_until(terminal: int, words: str, seconds: float = 30.0) -> str:
    """What the terminal shows until these words are there."""
    seen, until = "", time.monotonic() + seconds
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
        assert ready, seen
        seen += _CONTROL.sub("", os.read(terminal, 1 << 16).decode("utf-8", "ignore"))
    return seen


def test_live_on_a_narrow_terminal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    busy(url)
    with on_a_terminal(tmp_path, url, 60) as (running, terminal):
        shown = read_until(terminal, "q quit")
        assert max(len(line.rstrip("\r")) for line in shown.split("\n")) <= 60
        assert "▶  orders/fraud ⏸" in shown
        with library.open(url) as log:
            log.append("orders", {}, type="order.created")
        read_until(terminal, "8 events")
        os.write(terminal, b"\x1b[B\r")
        opened = read_until(terminal, "esc back")
        assert re.search(r"lane +cursor", opened) or "offsets behind" in read_until(terminal, "offsets behind")
        os.write(terminal, b"\x1b")
        read_until(terminal, "s sort: name")
        os.write(terminal, b"s")
        read_until(terminal, "s sort: lag")
        os.write(terminal, b"q")
        assert running.wait() == 0


def test_ctrl_c_ends_it_quietly(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    fill(url)
    with on_a_terminal(tmp_path, url, 80) as (running, terminal):
        read_until(terminal, "q quit")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 0
        assert termios.tcgetattr(terminal)[3] & termios.ICANON, "the terminal is as it was"
