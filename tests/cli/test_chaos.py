"""`penstock demo --chaos`: nothing is lost, the scoreboard can fail, and nothing is left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock as library
from penstock.cli.demo.chaos.board import stacked_bar, summary
from penstock.cli.demo.chaos.proof import prove
from penstock.cli.demo.chaos.scores import GroupScore, Score
from penstock.cli.demo.chaos.shop import TABLES, Order
from penstock.cli.demo.database import connect
from tests.cli.test_demo import read_all
from tests.support.running import penstock

_CONTROL = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")
STREAM = "chaos-orders"


def chaos(directory: Path, *arguments: object, **more: Any) -> Any:
    environment = {"TMPDIR": str(directory), **more.pop("environment", {})}
    return penstock(directory, "demo", "--chaos", *arguments, environment=environment, **more)


@pytest.mark.shows("O08")
def test_nothing_is_lost_on_a_postgresql_of_its_own(tmp_path: Path) -> None:
    """Workers, producers, connections and the database are killed; the answer is one document."""
    tmp_path.chmod(0o755)
    with chaos(tmp_path, "--seconds", 5, "--seed", 11, "--json") as running:
        assert running.wait() == 0, running.err
    told = json.loads(running.out)
    assert told["passed"] and (told["lost"], told["doubled"], told["seed"]) == (0, 0, 11)
    assert told["troubles"]["database"] >= 1 and told["troubles"]["kill"] >= 1 and told["troubles"]["cut"] >= 1
    assert told["orders"] > 50 and told["effects"] == 3 * told["orders"] - told["dead"]
    assert len(told["checks"]) == 12 and all(one["sql"] and one["passed"] for one in told["checks"])
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == []


@pytest.mark.shows("O08")
def test_an_effect_that_vanishes_fails_it(postgres_url: str, tmp_path: Path) -> None:
    """A database that somebody named is only written to; a trigger of ours swallows one effect."""
    with psycopg.connect(postgres_url) as shop:
        for table in TABLES["postgresql"]:
            shop.execute(table.encode())
        shop.execute(
            "create function swallow() returns trigger language plpgsql as "
            "$$begin if new.group_name = 'mail' and new.order_id = '1-3' then return null; end if; return new; end$$"
        )
        shop.execute("create trigger swallow before insert on chaos_effects for each row execute function swallow()")
    with chaos(tmp_path, "--seconds", 2, "--seed", 5, "--url", postgres_url) as running:
        assert running.wait() == 1, running.err
    assert "✗ mail: orders that are done and have no effect: 1" in running.out
    assert "1 of 12 checks FAILED" in running.out and "with the seed 5" in running.out
    assert re.search(r"lost 1\b", running.out) and "Nothing was lost" not in running.out
    assert "kill -9 PostgreSQL" not in running.out and "which is left alone" in running.out


# --- on a terminal, and what the proof finds -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A short run on a terminal of 60 columns: its file, and what the terminal showed."""
    directory = tmp_path_factory.mktemp("chaos")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
    environment = {"COLUMNS": "60", "TERM": "xterm"}
    url = f"sqlite:///{directory / 'shop.db'}"
    options: dict[str, Any] = {"stdout": theirs, "stderr": theirs, "environment": environment}
    with chaos(directory, "--seconds", 2, "--seed", 3, "--url", url, **options) as running:
        os.close(theirs)
        seen = _CONTROL.sub("", read_all(ours))
        assert running.wait() == 0, seen
    os.close(ours)
    return directory / "shop.db", seen


@pytest.mark.shows("O08")
def test_the_scoreboard_on_a_narrow_terminal(shown: tuple[Path, str]) -> None:
    seen = shown[1]
    assert max(len(line.rstrip("\r")) for line in seen.split("\n")) <= 60
    for words in ("chaos 1/2 s ━", "healing 2/2 s", "● database up", "doubled lost", "Nothing was lost"):
        assert words in seen, words
    assert re.search(r"ledger █+[█▓░]* +[\d,]+ [▁▂▃▄▅▆▇█]+", seen)
    assert re.search(r"☠ kill -9 worker \d \(pid \d+\)", seen)


TAMPERING = {
    "an effect is gone": (
        "delete from chaos_effects where group_name = 'fraud' and entry = (select min(entry) from chaos_effects "
        "where group_name = 'fraud')",
        ["fraud: orders that are done and have no effect"],
    ),
    "an effect happened twice": (
        "insert into chaos_effects (stream, group_name, order_id, customer, nth) select stream, group_name, order_id, "
        "customer, nth from chaos_effects where group_name = 'mail' limit 1",
        ["effects = orders with an effect, over all groups"],
    ),
    "two effects change places": (
        "update chaos_effects set nth = 3 - nth where group_name = 'ledger' and nth < 3 and customer = "
        "(select customer from chaos_effects where group_name = 'ledger' and nth = 2 limit 1)",
        ["ledger: effects out of the order of their customer"],
    ),
    "a total is wrong": (
        "update penstock_state set value = value + 1 where name = 'cents' and key = 'c1-00'",
        ["customers whose total in the state is not the sum of their orders"],
    ),
    "an order is gone that was acknowledged": (
        "delete from chaos_orders where producer = 1 and number = 0",
        [
            "orders that producer 1 was told are stored",
            "orders in the shop's table = events in the log",
            "customers whose total in the state is not the sum of their orders",
        ],
    ),
}


@pytest.mark.parametrize(("statement", "wanted"), TAMPERING.values(), ids=TAMPERING.keys())
def test_the_proof_finds_what_is_wrong(
    shown: tuple[Path, str], tmp_path: Path, statement: str, wanted: list[str]
) -> None:
    copy = shutil.copy(shown[0], tmp_path / "shop.db")
    with sqlite3.connect(copy) as shop:
        (orders,) = shop.execute("select count(*) from chaos_orders where producer = 1").fetchone()
        assert shop.execute(statement).rowcount > 0
    shop.close()
    with library.open(f"sqlite:///{copy}") as log, connect(log, ()) as database:
        found = prove(database, STREAM, [orders])
    assert [one.what for one in found if not one.passed] == wanted


# --- ending it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with chaos(tmp_path, "--seconds", 600, "--url", url, "--json") as running:
        running.wait_until(lambda: bool(list(tmp_path.glob("penstock-chaos-*/worker-3.err"))), "the crew is there")
        running.process.send_signal(number)
        assert running.wait() == 130
    assert running.out == "" and "Traceback" not in running.err
    assert list(tmp_path.glob("penstock-chaos-*")) == []
    left = subprocess.run(["pgrep", "-f", f"demo.chaos.*{STREAM}.* {running.pid}$"], check=False, capture_output=True)
    assert left.stdout == b""


# --- without a process -----------------------------------------------------------------------------------------------


def test_the_orders_of_a_seed_are_always_the_same() -> None:
    made = [Order.of(7, 1, number) for number in range(2_000)]
    assert made == [Order.of(7, 1, number) for number in range(2_000)] != [Order.of(8, 1, n) for n in range(2_000)]
    assert 5 < sum(one.country is None for one in made) < 50 and 5 < sum(one.stumbles for one in made) < 50
    assert [one.nth for one in made if one.customer == "c1-03"] == list(range(1, 101))


def test_scores() -> None:
    fine = GroupScore(pending=1, claimed=2, published=7, dead=1, effects=7, distinct=7)
    assert (Score(orders=11, events=11, groups={"a": fine}).lost, Score(groups={"a": fine}).doubled) == (0, 0)
    bad = GroupScore(published=7, effects=8, distinct=6)
    score = Score(orders=9, events=7, groups={"a": bad})
    assert (score.lost, score.doubled, score.drained) == (3, 2, True)
    assert "doubled 2 · lost 3" in summary(score)
    assert str(stacked_bar(fine, 11)) == "███████" + "█" + "▓▓" + "░"
    assert len(stacked_bar(GroupScore(published=10_000, dead=1, claimed=1, pending=1), 14)) == 14
