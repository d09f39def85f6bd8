"""`penstock demo`: it tells its story on Spark and without, its checks can fail, and what it advises works."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as library
from penstock.cli.demo import orders
from tests.cli.conftest import Command
from tests.support.running import penstock

FEW = ("--orders", "400")
LOCAL = ("--engine", "local", *FEW)
SPARK_SECONDS = 280
_CONTROL = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")


# --- on Spark --------------------------------------------------------------------------------------------------------


@pytest.mark.shows("S01", "S12")
@pytest.mark.timeout(300)
def test_the_story_on_a_terminal(tmp_path: Path) -> None:
    """Three groups on Spark: who is poisoned ends DEAD and is mended, everybody else never notices."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    ours, theirs = pty.openpty()
    os.set_blocking(ours, True)
    environment = {"COLUMNS": "180", "TERM": "xterm", "TMPDIR": str(tmp_path)}
    try:
        with penstock(
            tmp_path, "demo", *FEW, "--url", url, stdout=theirs, stderr=theirs, environment=environment
        ) as running:
            os.close(theirs)
            shown = _CONTROL.sub("", read_all(ours))
            assert running.process.wait(SPARK_SECONDS) == 0, shown
    finally:
        os.close(ours)
    assert "Nothing was lost, and every effect happened once." in shown and "✗" not in shown
    assert "waiting for Spark to start" in shown
    for group in ("screening", "revenue", "windows"):  # the live view
        assert re.search(rf"demo-orders/{group} +━+ +[\d,]+ +\d+ +\d+ +[\d,]+ +[\d,]+/s +[\d,]+", shown), group
    for error in ("killed by SIGSEGV", "no answer within 2 s", "'NoneType' object has no attribute 'upper'"):
        assert error in shown
    assert shown.count("   ✓ ") == 8 and "from demo_windows" in shown
    assert re.search(r"revenue per hour, from the table of windows:  ([▁▂▃▄▅▆▇█]+)", shown)
    with library.open(url) as log:
        groups = {one.group: (one.published, one.dead, one.pending + one.claimed) for one in log.stats().groups}
        assert groups == dict.fromkeys(("screening", "revenue", "windows"), (400, 0, 0))
        lives = [log.delivery("demo-orders", "screening", one.event_id) for one in log.read("demo-orders", limit=400)]
    deaths = Counter(
        str(attempt.error_code) for one in lives for attempt in one.history if attempt.outcome in ("failed", "dead")
    )
    assert deaths == {"process_died": 6, "timed_out": 2, "AttributeError": 16}
    assert not list(tmp_path.glob("penstock-demo-*")), "the temporary directory is gone"


def read_all(descriptor: int) -> str:
    """What a terminal shows until nobody writes to it any more."""
    seen = b""
    while True:
        try:
            got = os.read(descriptor, 1 << 16)
        except OSError:  # so Linux says that the other end is closed
            got = b""
        if not got:
            return seen.decode()
        seen += got


# --- without Spark ---------------------------------------------------------------------------------------------------


@pytest.mark.empty_place
def test_one_document_on_either_store(log_url: str, tmp_path: Path) -> None:
    told = run_json(tmp_path, *LOCAL, "--url", log_url)
    assert (told["stream"], told["engine"], told["orders"]) == ("demo-orders", "local", 400)
    assert (told["dead"], told["redriven"], told["passed"]) == (12, 12, True)
    gold = sum(cents >= 1_000_000 for cents in orders.totals(orders.make(400)).values())
    assert 0 < gold < 4
    assert [one["found"] for one in told["checks"]] == [
        "screening 12",
        "400 = 400",
        "revenue 400 = 400, screening 400 = 400",
        "0",
        "400 = 400",
        "0",
        f"{gold} = {gold}",
    ]


def run_json(directory: Path, *arguments: object, code: int = 0) -> Any:
    with penstock(directory, "demo", "--json", *arguments) as running:
        assert running.wait() == code, running.err
    return json.loads(running.out)


def test_a_check_that_fails_is_said_loudly(tmp_path: Path) -> None:
    """An effect that happens twice."""
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("create table demo_scores (stream text, order_id bigint, score bigint)")
        shop.execute(
            "create trigger meddle after insert on demo_scores when new.order_id = 7 "
            "begin insert into demo_scores values (new.stream, 7, new.score); end"
        )
    shop.close()
    with penstock(tmp_path, "demo", *LOCAL, "--url", f"sqlite:///{tmp_path / 'shop.db'}") as running:
        assert running.wait() == 1
    assert "1 of 7 checks FAILED" in running.out
    assert "✗ scores written = orders scored: 401 = 400" in running.out
    assert "every effect happened once" not in running.out


def test_a_document_says_which_check_failed(tmp_path: Path) -> None:
    """An order that somebody changes behind our back."""
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("create table demo_orders (stream text, id bigint, customer text, cents bigint, placed_at bigint)")
        shop.execute(
            "create trigger meddle after insert on demo_orders when new.id = 7 "
            "begin update demo_orders set cents = cents + 1 where id = 7; end"
        )
    shop.close()
    told = run_json(tmp_path, *LOCAL, "--url", f"sqlite:///{tmp_path / 'shop.db'}", code=1)
    (failed,) = [one for one in told["checks"] if not one["passed"]]
    assert told["passed"] is False and (failed["wanted"], failed["found"]) == ("0", "1")
    assert failed["what"] == "customers whose total in the state is not the sum of their orders"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory in which the story was told on the local engine, and its words."""
    directory = tmp_path_factory.mktemp("story")
    with penstock(directory, "demo", *LOCAL, environment={"COLUMNS": "180"}) as running:
        assert running.wait() == 0
    return directory, running.out


@pytest.mark.timeout(300)
def test_what_it_advises_works(story: tuple[Path, str]) -> None:
    directory, words = story
    first, *others = advice(words)
    assert " demo --engine local --url sqlite:///penstock-demo.db" in first
    told = shell(directory, f"{first.partition('#')[0]} --orders 200")
    said_first = [shell(directory, line) for line in others]
    said = {line.split()[1]: shell(directory, line) for line in advice(told)}
    assert said.keys() == {"stats", "events", "show", "doctor"}
    assert "redriven" in said["show"], "an order that was dead"
    for text in (*said_first, *said.values()):
        assert text.strip() and "Nothing matches." not in text


def test_a_command_in_the_story_is_followed_by_what_it_prints(story: tuple[Path, str]) -> None:
    """The columns of `penstock dead`, and what `penstock redrive` says."""
    lines = story[1].splitlines()
    place = lines.index("   $ penstock dead demo-orders screening")
    columns = ["offset", "type", "key", "state", "tries/failed", "when", "event id", "error"]
    assert re.split(r"\s{2,}", lines[place + 1].strip()) == columns
    rows = lines[place + 3 : place + 15]
    assert all(re.match(r" *\d+  order\.created  customer-\d+ +DEAD +\d+/2 ", row) for row in rows), rows
    assert sum("AttributeError: 'NoneType' object has no attribute 'upper'" in row for row in rows) == 8
    place = lines.index("   $ penstock redrive demo-orders screening --all --yes")
    assert lines[place + 1] == "screening on demo-orders: 12 deliveries are now PENDING by redrive"


def advice(told: str) -> list[str]:
    return [line.strip() for line in told.partition("What to try next:\n")[2].splitlines()]


def shell(directory: Path, line: str) -> str:
    done = subprocess.run(line, shell=True, cwd=directory, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_advice_about_a_log_with_a_password_does_not_show_it() -> None:
    from penstock.cli.demo.next_steps import next_steps

    lines = "\n".join(next_steps("demo-orders", [5], "postgresql://me:secret@host/shop", "spark"))
    assert "secret" not in lines and "PENSTOCK_URL" in lines and "show demo-orders 5" in lines


def test_a_signal_ends_the_story_and_it_can_be_told_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with penstock(tmp_path, "demo", *LOCAL, "--url", url) as running:
        running.wait_until(lambda: group_is_there(tmp_path / "shop.db"), "the groups are declared")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130
    assert "stopping:" in running.err and "Traceback" not in running.err
    assert "3  The dead letters" not in running.out
    again = run_json(tmp_path, *LOCAL, "--url", url)  # in the same database, beside what was left
    assert again["passed"] and again["stream"] == "demo-orders-2"


def group_is_there(path: Path) -> bool:
    """Two groups: the handlers of signals were there before the first."""
    if not path.exists():
        return False
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as shop:
        try:
            (count,) = shop.execute("select count(*) from penstock_groups").fetchone()
        except sqlite3.OperationalError:  # there is no such table yet
            count = 0
    shop.close()
    return bool(count == 2)


# --- refusing --------------------------------------------------------------------------------------------------------


def test_without_spark_or_java_it_says_so_before_it_begins(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    refused = command("demo")
    assert refused.code == 1 and refused.out == ""
    assert "[java_missing]" in refused.err and str(tmp_path) in refused.err
    monkeypatch.setitem(sys.modules, "pyspark", None)
    refused = command("demo", "--json")
    assert (refused.code, refused.error) == (1, "engine_missing")
    assert "--engine local" in refused.json["error"]["hint"]


@pytest.mark.parametrize("options", [("--engine", "flink"), ("--orders", "99"), ("--orders", "many")], ids=shlex.join)
def test_wrong_usage(command: Command, options: tuple[str, ...]) -> None:
    refused = command("demo", *options, "--json")
    assert (refused.code, refused.error) == (2, "usage")


# --- the orders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [orders.FEWEST, 400, 1_237])
def test_the_orders_are_the_same_every_time_and_twelve_are_trouble(count: int) -> None:
    made = list(orders.make(count))
    assert made == list(orders.make(count))
    assert [one.id for one in made] == list(range(1, count + 1))
    assert sum(one.country is None for one in made) == 8
    assert sum(one.picture == orders.BROKEN for one in made) == 3
    assert sum(one.coupon == orders.ENDLESS for one in made) == 1
    assert sum(orders.totals(made).values()) == sum(one.cents for one in made)
