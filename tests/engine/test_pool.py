"""Several processes run one app: they share its groups, dead ones are replaced, and none stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine.isolation.process import Died
from penstock.engine.local import pool
from penstock.engine.local.pool import Pool
from penstock.engine.local.pool_process import Hello, Message
from tests.support import running
from tests.support.running import Gate, Running, watching
from tests.support.waiting import wait_until

SHOP = """
import os
import sys
from penstock import App

here = os.path.dirname(os.path.abspath(__file__))
app = App(os.environ.get("SHOP_URL"), name="shop")
member = getattr(sys.modules["__main__"].__spec__, "name", None) == "penstock.engine.local.pool_main"

def note(line):
    with open(os.path.join(here, "notes"), "a") as notes:
        notes.write(f"{os.getpid()} {os.getppid()} {line}\\n")

@app.subscribe("orders", group="fraud", batch_size=5, lease_seconds=1)
def screen(event):
    note(event.offset)
    open(os.path.join(here, "gate")).close()
"""
NOTES_STOPS = """
if member:
    from penstock.engine.local.engine import LocalEngine
    stop = LocalEngine.stop
    def stop_and_note(engine):
        stop(engine)
        open(os.path.join(here, f"stopping-{os.getpid()}"), "w").close()
    LocalEngine.stop = stop_and_note
"""
ORDERS = 60


class Shop:
    """An app whose handlers wait at a gate, and the log it works on."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory, self.url = directory, url
        self.gate = Gate(directory / "gate")
        self.write(SHOP)

    def write(self, text: str) -> None:
        (self.directory / "shop.py").write_text(text)

    def append(self, count: int = ORDERS) -> None:
        with penstock.open(self.url) as log:
            log.append_many("orders", [{"payload": {}, "type": "order.created"}] * count)

    def run(self, *arguments: object, processes: int = 2) -> Running:
        given = ("run", "shop.py", "--engine", "local", "--processes", processes, "--url", self.url)
        return running.penstock(self.directory, *given, "--json", "--quiet", *arguments)

    def notes(self) -> list[tuple[int, int, int]]:
        """Every call of the handler: its process, the pool process above it, and the offset."""
        file = self.directory / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(own), int(member), int(offset)) for own, member, offset in map(str.split, lines)]

    def members(self) -> set[int]:
        return {member for _, member, _ in self.notes()}

    def counts(self) -> dict[str, int]:
        with penstock.open(self.url) as log:
            found = log.deliveries("orders", "fraud", limit=1000)
            return {**Counter(str(one.state) for one in found), "failures": sum(one.failures for one in found)}


@pytest.fixture
def shop(tmp_path: Path, log_url: str) -> Iterator[Shop]:
    made = Shop(tmp_path, log_url)
    yield made
    made.gate.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Shop]:
    """On SQLite only, because the store does not matter here."""
    made = Shop(tmp_path, f"sqlite:///{tmp_path}/log.db")
    yield made
    made.gate.close()


# --- together ---------------------------------------------------------------------------------------------------------


def test_two_pool_processes_share_a_group(shop: Shop) -> None:
    shop.append()
    with shop.run("--until-drained") as foreground:
        foreground.wait_until(lambda: len(shop.members()) == 2, "both at work")
        shop.gate.open()
        assert foreground.wait() == 0
    assert sorted(offset for _, _, offset in shop.notes()) == list(range(1, ORDERS + 1))
    assert shop.counts() == {"PUBLISHED": ORDERS, "failures": 0}
    document = json.loads(foreground.out)
    assert document["groups"]["orders/fraud"]["published"] == ORDERS
    assert document["member_deaths"] == 0 and document["paused"] == {}
    assert foreground.pid not in shop.members()


@pytest.mark.shows("K17")
def test_pool_processes_stop_gracefully_when_the_foreground_process_is_killed(shop: Shop) -> None:
    shop.append()
    shop.write(SHOP + NOTES_STOPS)
    with shop.run() as foreground:
        foreground.wait_until(lambda: len(shop.members()) == 2, "both at work")
        everybody = {pid for own, member, _ in shop.notes() for pid in (own, member)}
        with watching(*everybody) as wait_for_all:
            foreground.process.kill()
            wait_until(lambda: len([*shop.directory.glob("stopping-*")]) == 2, "both to stop", running.SECONDS)
            shop.gate.open()
            wait_for_all()
    assert shop.counts() == {"PUBLISHED": 2, "PENDING": ORDERS - 2, "failures": 0}


# --- one of them falls ------------------------------------------------------------------------------------------------


def test_a_killed_pool_process_is_replaced(shop: Shop) -> None:
    shop.append()
    with shop.run("--until-drained") as foreground:
        foreground.wait_until(lambda: len(shop.members()) == 2, "both at work")
        first, second = shop.members()
        with watching(*(own for own, member, _ in shop.notes() if member == first)) as wait_for_handler:
            os.kill(first, signal.SIGKILL)
            wait_for_handler()
        foreground.wait_until(lambda: len(shop.members()) == 3, "another one at work")
        shop.gate.open()
        assert foreground.wait() == 0
    assert second in shop.members()
    (line,) = foreground.err.splitlines()
    assert f"(pid {first}): the process was killed by SIGKILL" in line and line.endswith("starts in 0.5 s")
    document = json.loads(foreground.out)
    assert document["member_deaths"] == 1
    assert document["groups"]["orders/fraud"]["published"] == ORDERS
    assert shop.counts()["PUBLISHED"] == ORDERS


def test_a_pool_process_stopped_from_outside_is_replaced(small: Shop) -> None:
    small.append()
    with small.run("--until-drained") as foreground:
        foreground.wait_until(lambda: len(small.members()) == 2, "both at work")
        os.kill(min(small.members()), signal.SIGTERM)
        small.gate.open()
        assert foreground.wait() == 0
    assert "stopped by someone else; a new one starts in 0.5 s" in foreground.err
    assert json.loads(foreground.out)["member_deaths"] == 1
    assert small.counts() == {"PUBLISHED": ORDERS, "failures": 0}


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        (SHOP.replace('"fraud",', '"fraud", types=["b.*"] if member else None,'), 1, "binding_changed"),
        (SHOP.replace('group="fraud"', 'group="mail" if member else "fraud"'), 1, "unknown_group"),
        (SHOP + "\nif member: raise KeyError('setting')", 2, "app_not_found"),
    ],
)
def test_an_error_of_a_pool_process_ends_the_run_with_it(small: Shop, text: str, code: int, error: str) -> None:
    small.append(1)
    small.gate.open()
    with small.run("--until-drained") as foreground:
        assert foreground.wait() == 0
    small.write(text)
    with small.run(processes=3) as foreground:
        assert foreground.wait() == code
    assert json.loads(foreground.out)["error"]["code"] == error
    assert foreground.err == ""


# --- what the end of a member means, without one ----------------------------------------------------------------------


class Scripted:
    """A fake pool process that sends given messages."""

    scripts: list[list[Message | Died]]
    started: list[Scripted]

    def __init__(self, hello: Hello, tell: Callable[[Scripted, Message | Died], None]) -> None:
        self.groups: dict[str, dict[str, int]] = {}
        self.paused: dict[str, str] = {}
        self.begun = self.stopping = self.stopped = False
        self.last: Message | None = None
        self.pid, self.seconds = 4000 + len(self.started), 1.0
        self._tell = tell
        self.started.append(self)
        self._script = self.scripts.pop(0)
        for said in self._script:
            tell(self, said)

    def stop(self) -> None:
        if not self.stopped and not isinstance(self._script[-1], Died):
            self.stopped = True
            self._tell(self, {"ended": True, "asked": True})
            self._tell(self, Died(0))


AT_WORK: Message = {"groups": {"s/g": {"published": 1}}, "paused": {}, "stopping": False}
DRAINED: Message = {"ended": True, "asked": False}
AWAY: Message = {"ended": True, "error": ("store_unavailable", "Gone.")}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pool]:
    monkeypatch.setattr(pool, "PoolProcess", Scripted)
    monkeypatch.setattr(pool, "_RESTART_SECONDS", (0.0, 0.0))

    def make(count: int, *scripts: list[Any]) -> Pool:
        Scripted.scripts, Scripted.started = list(scripts), []
        made = Pool(Hello("", "", None, [], True, [], []), ["s/g"], count)
        made.start()
        return made

    return make


def test_the_counts_of_dead_pool_processes_are_kept(scripted: Callable[..., Pool]) -> None:
    run = scripted(2, [AT_WORK, Died(-9)], [AT_WORK, DRAINED, Died(0)], [AT_WORK, DRAINED, Died(0)])
    assert run.wait()
    assert run.snapshot()["s/g"]["published"] == 3
    assert run.deaths == 1


def test_a_lost_database_does_not_end_a_run_that_has_begun(scripted: Callable[..., Pool]) -> None:
    run = scripted(1, [AT_WORK, Died(-9)], [AWAY, Died(1)], [AT_WORK, DRAINED, Died(0)])
    assert run.wait()
    assert run.deaths == 2


def test_a_database_that_is_missing_at_the_start_ends_the_run(scripted: Callable[..., Pool]) -> None:
    run = scripted(1, [AWAY, Died(1)])
    with pytest.raises(penstock.StoreUnavailable, match="Gone"):
        run.wait()


def test_the_run_fails_when_pool_processes_never_start(scripted: Callable[..., Pool]) -> None:
    run = scripted(2, [AT_WORK], *[[Died(3)]] * 5)
    with pytest.raises(penstock.HandlerUnreachable, match="exited with status 3"):
        run.wait()
    assert Scripted.started[0].stopped


def test_no_pool_process_is_replaced_during_a_stop(
    scripted: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = scripted(2, [AT_WORK], [AT_WORK, Died(-9)])
    run.stop()
    assert run.wait()
    (warning,) = caplog.messages
    assert "SIGKILL" in warning and "a new one" not in warning
    monkeypatch.setattr(pool, "_RESTART_SECONDS", (3600.0, 3600.0))
    due_later = scripted(1, [AT_WORK, Died(-9)])
    assert not due_later.wait(0.0) and not due_later.wait(0.0)
    assert due_later.deaths == 1
    due_later.stop()
    assert due_later.wait(60.0)
    assert len(Scripted.started) == 1


def test_a_pool_reports_what_its_last_drained_process_found_paused(scripted: Callable[..., Pool]) -> None:
    paused: Message = {**AT_WORK, "paused": {"s/g": "deploying"}}
    first = scripted(2, [paused, DRAINED, Died(0)], [AT_WORK, DRAINED, Died(0)])
    assert first.wait() and first.paused == {}
    second = scripted(2, [AT_WORK, DRAINED, Died(0)], [paused, DRAINED, Died(0)])
    assert second.wait() and second.paused == {"s/g": "deploying"}


def test_the_restart_delay_grows_and_a_long_life_resets_it() -> None:
    seat = pool._Seat(1)
    assert [seat.next_pause(1.0) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert seat.next_pause(61.0) == 0.5


# --- App.run ----------------------------------------------------------------------------------------------------------

GUARDED = """
if __name__ == "__main__":
    print(app.run("local", until_drained=True, processes=2).line())
"""


def run_python(shop: Shop, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=shop.directory,
        env={**os.environ, "SHOP_URL": shop.url},
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
        timeout=running.SECONDS,
    )


def test_a_program_runs_its_app_in_several_processes(small: Shop) -> None:
    (small.directory / "package").mkdir()
    (small.directory / "package/part.py").touch()
    (small.directory / "package/program.py").write_text(f"from . import part\n{SHOP}{GUARDED}")
    small.gate.open()
    os.symlink("../gate", small.directory / "package/gate")
    programs = {
        "the program itself": ["shop.py"],
        "a module of a package": ["-m", "package.program"],
        "an imported module": [
            "-c",
            "import shop; print(shop.app.run('local', until_drained=True, processes=2).line())",
        ],
    }
    small.write(SHOP + GUARDED)
    for what, arguments in programs.items():
        small.append(3)
        done = run_python(small, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), what
        assert " published=3 " in done.stdout and "member_deaths=0" in done.stdout, what


def test_a_program_may_declare_in_several_modules(small: Shop) -> None:
    """Only the program itself has imported all of them."""
    more = "from shop import app\n@app.subscribe('orders', group='more')\ndef handle(event): pass\n"
    (small.directory / "more.py").write_text(more)
    (small.directory / "program.py").write_text(f"from shop import app\nimport more\n{GUARDED}")
    small.append(3)
    small.gate.open()
    done = run_python(small, "program.py")
    assert done.returncode == 0, done.stderr
    assert "groups=2" in done.stdout and " published=6 " in done.stdout


def test_an_app_without_a_name_is_refused(small: Shop) -> None:
    done = run_python(
        small, "-c", "import shop\nhidden = [shop.app]\ndel shop.app\nhidden[0].run('local', processes=2)"
    )
    assert done.returncode == 1
    assert "[app_not_found]" in done.stderr and "give it a name at the top level of a .py file" in done.stderr


@pytest.mark.parametrize("processes", [1, 2])
def test_a_program_that_runs_when_it_is_imported_is_refused(small: Shop, processes: int) -> None:
    """Its handler and pool processes would run it again, and so on."""
    small.write(f"{SHOP}\napp.run('local', until_drained=True, processes={processes})")
    small.append(1)
    done = run_python(small, "shop.py")
    assert done.returncode == 1
    assert 'Put the call under `if __name__ == "__main__":`' in done.stderr


@pytest.mark.parametrize("processes", [0, 65, True, 1.5, "2"])
def test_an_invalid_number_of_processes_is_refused(processes: Any) -> None:
    with pytest.raises(penstock.InvalidInput, match="between 1 and 64"):
        penstock.App().run("local", processes=processes)
