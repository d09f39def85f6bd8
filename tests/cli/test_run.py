"""`penstock run` in a process of its own: what it does, what it prints, how it stops, and how it ends."""

from __future__ import annotations

import fcntl
import io
import json
import logging
import os
import pty
import re
import signal
import termios
import threading
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import penstock as library
from penstock.cli.run_display import Display
from penstock.cli.run_lines import life_shown, warnings_shown
from penstock.core.observe import Observers, ProcessesDied, RunBegan, RunEnded, RunProgressed, RunStopping, everyone
from penstock.engine.outage import Outage, patiently
from tests.cli.conftest import Command
from tests.support.running import Gate, Running, penstock, watching

ORDERS = 20
LOCAL = ("--engine", "local")
DRAIN = (*LOCAL, "--until-drained")
# What a run prints and how it ends has to do with its processes, and not with its store: each of both once.
on_one_and_two_processes = pytest.mark.parametrize(
    ("log_url", "processes"), [("sqlite", 1), ("postgresql", 2)], indirect=["log_url"]
)

SHOP = """
import os
from penstock import App, Retry, Unavailable

app = App({url!r}, name="shop")
here = os.path.dirname(os.path.abspath(__file__))

@app.subscribe("orders", group="fraud", retry=Retry(max_attempts=1), batch_size=10)
def screen(event):
    do = event.json().get("do")
    if do == "raise":
        raise ValueError("no country")
    if do == "print":
        print("printed by a handler", flush=True)
    if do == "die":
        os._exit(3)
    if do == "wait":
        note(f"{{os.getpid()}} {{os.getppid()}}")
        open(os.path.join(here, "gate")).close()
    if do == "unavailable" and not os.path.exists(os.path.join(here, "asked")):
        open(os.path.join(here, "asked"), "w").close()
        raise Unavailable("the target is down")

@app.subscribe("orders", group="mail", isolation="inline")
def mail(event):
    if event.json().get("do") == "print":
        print("printed inline", flush=True)

def note(line):
    with open(os.path.join(here, "notes"), "a") as notes:
        notes.write(line + "\\n")
"""


class Shop:
    """An app in a directory of its own, and the log it works on."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.gate = Gate(directory / "gate")
        (directory / "shop.py").write_text(SHOP.format(url=None))

    def append(self, *todo: str | None) -> None:
        """One event for each thing to do."""
        with library.open(self.url) as log:
            log.append_many("orders", [{"payload": {"do": one}, "type": "order.created"} for one in todo])

    def run(self, *arguments: object, app: str = "shop.py", **more: object) -> Running:
        return penstock(self.directory, "run", app, *arguments, "--url", self.url, **more)

    def log_everything(self) -> None:
        """Have members say when they have heard of a stop."""
        file = self.directory / "shop.py"
        file.write_text(f"import logging\nlogging.basicConfig(level=logging.INFO)\n{file.read_text()}")

    def counts(self, group: str = "fraud") -> dict[str, int]:
        """Deliveries per state; a failure would show as one."""
        with library.open(self.url) as log:
            found = log.deliveries("orders", group, limit=1000)
            return {**Counter(str(one.state) for one in found), "failures": sum(one.failures for one in found)}

    def groups(self) -> set[str]:
        with library.open(self.url) as log:
            return {one.group_name for one in log.groups()}

    def waiting(self) -> list[tuple[int, int]]:
        """Handlers at the gate: their process, and the one that runs the engine."""
        notes = self.directory / "notes"
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [(int(own), int(engine)) for own, engine in (line.split() for line in lines)]


@pytest.fixture
def shop(tmp_path: Path, log_url: str) -> Iterator[Shop]:
    made = Shop(tmp_path, log_url)
    yield made
    made.gate.close()


# --- draining --------------------------------------------------------------------------------------------------------


def test_it_drains_and_says_so_in_one_document(shop: Shop) -> None:
    shop.append(*[None] * (ORDERS - 2), "raise", "print")
    with shop.run(*DRAIN, "--json", "--quiet") as running:
        assert running.wait() == 0
    document = json.loads(running.out)
    assert document.keys() == {"seconds", "groups", "paused"}
    assert document["seconds"] > 0 and document["paused"] == {}
    assert document["groups"].keys() == {"orders/fraud", "orders/mail"}
    fraud = document["groups"]["orders/fraud"]
    assert (fraud["published"], fraud["dead"], fraud["released"]) == (ORDERS - 1, 1, 0)
    assert document["groups"]["orders/mail"]["published"] == ORDERS
    assert shop.counts() == {"PUBLISHED": ORDERS - 1, "DEAD": 1, "failures": 1}
    assert shop.counts("mail") == {"PUBLISHED": ORDERS, "failures": 0}
    lines = sorted(running.err.splitlines())
    assert lines[1:] == ["printed by a handler", "printed inline"]
    assert re.match(r"orders/fraud: orders@\d+ \S+ failed at attempt 1: ValueError: no country \[1-\w+\]", lines[0])


def test_it_ends_with_one_line(shop: Shop) -> None:
    shop.append(*[None] * ORDERS, "raise")
    with shop.run(*DRAIN) as running:
        assert running.wait() == 0
    (line,) = running.out.splitlines()
    assert re.match(r"stopped after \d+\.\d s: groups=2 leases=\d+ published=41 failed=0 dead=1 released=0 ", line)
    began, failing, ended = running.err.splitlines()
    assert began == "run 1 began on the local engine: orders/fraud, orders/mail"
    assert failing.startswith("orders/fraud: ") and "ValueError: no country" in failing
    assert ended == "the run ended: stopped"


@on_one_and_two_processes
def test_its_life_as_json_lines(shop: Shop, processes: int) -> None:
    shop.append(None, "raise", "die")
    with shop.run(*DRAIN, "--log-format", "json", "--group", "fraud", "--processes", processes) as running:
        assert running.wait() == 0
    lines = [json.loads(line) for line in running.err.splitlines()]
    assert all(line.keys() >= {"at", "level", "event", "message"} for line in lines)
    first, *between, last = lines
    assert (first["event"], first["engine"], first["groups"]) == ("began", "local", ["orders/fraud"])
    assert (last["event"], last["outcome"]) == ("ended", "stopped")
    warnings = [one["message"] for one in between if one["level"] == "warning"]
    assert any("ValueError: no country" in one for one in warnings)
    (died,) = [one for one in between if one["event"] == "processes_died"]
    assert (died["stream"], died["group"], died["count"]) == ("orders", "fraud", 1)


@pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
def test_quiet_leaves_only_warnings(shop: Shop) -> None:
    shop.append(None, "raise")
    with shop.run(*DRAIN, "--quiet") as running:
        assert running.wait() == 0
    (line,) = running.err.splitlines()
    assert "ValueError: no country" in line


def test_a_failed_run_says_so(shop: Shop) -> None:
    shop.append(None)
    with shop.run(*DRAIN) as running:
        assert running.wait() == 0
    file = shop.directory / "shop.py"
    file.write_text(file.read_text().replace('"orders", group="fraud"', '"orders", types=["a.*"], group="fraud"'))
    with shop.run(*DRAIN, "--log-format", "json") as running:
        assert running.wait() == 1
    *_, ended, error = [json.loads(line) for line in running.err.splitlines()]
    assert (ended["event"], ended["outcome"]) == ("ended", "failed: binding_changed")
    assert (error["level"], error["code"]) == ("error", "binding_changed")


def test_lines_say_that_spark_is_starting(capsys: pytest.CaptureFixture[str]) -> None:
    with life_shown("spark", json_lines=False):
        everyone.emit(RunBegan("spark", ["orders/fraud"], 7))
        everyone.emit(RunStopping())
        everyone.emit(ProcessesDied("orders/fraud", 2))
        everyone.emit(RunEnded("stopped"))
    everyone.emit(RunStopping())
    assert capsys.readouterr().err.splitlines() == [
        "Spark is starting",
        "run 7 began on the spark engine: orders/fraud",
        "stopping: running handlers get their time; a second signal exits at once",
        "orders/fraud: 2 of its handlers' processes died",
        "the run ended: stopped",
    ]


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_database_that_is_away_and_back_and_a_lost_lease_are_lines(
    capsys: pytest.CaptureFixture[str], json_lines: bool
) -> None:
    """They are warnings, which --quiet leaves."""
    tries = iter([library.StoreUnavailable("no route"), None, library.LeaseLost("Lease 5 is gone.")])

    def do() -> None:
        if (error := next(tries)) is not None:
            raise error

    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []  # pytest's own
    try:
        with warnings_shown(json_lines):
            for _ in range(2):
                patiently(do, "orders/fraud", Observers(), threading.Event(), Outage())
    finally:
        root.handlers = handlers
    lines = capsys.readouterr().err.splitlines()
    said = [json.loads(line)["message"] for line in lines] if json_lines else lines
    away, back, lost = said
    assert away.startswith("orders/fraud: waiting for the database: ") and "no route" in away
    assert back.startswith("orders/fraud: the database is back after ")
    assert lost == "orders/fraud: Lease 5 is gone."


def test_only_the_named_groups_are_worked_for(shop: Shop) -> None:
    shop.append(None)
    with shop.run(*DRAIN, "--group", "mail", "--json") as running:
        assert running.wait() == 0
    assert json.loads(running.out)["groups"].keys() == {"orders/mail"}
    with library.open(shop.url) as log:
        assert [one.group_name for one in log.groups()] == ["mail"]


def test_a_paused_group_ends_it_with_1_and_the_reason(shop: Shop) -> None:
    shop.append(None)
    with shop.run(*DRAIN) as running:
        assert running.wait() == 0
    shop.append(None)
    with library.open(shop.url) as log:
        log.pause("orders", "fraud", reason="deploying")
    with shop.run(*DRAIN, "--json") as running:
        assert running.wait() == 1
    assert json.loads(running.out)["paused"] == {"orders/fraud": "deploying"}
    with shop.run(*DRAIN, "--processes", "2") as running:
        assert running.wait() == 1
    assert "paused=orders/fraud (deploying)" in running.out
    assert shop.counts() == {"PUBLISHED": 1, "PENDING": 1, "failures": 0}


def test_which_log(tmp_path: Path) -> None:
    """--url wins over the app's own; $PENSTOCK_URL is for apps that name none."""
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in ("app", "environment", "option")}
    (tmp_path / "shop.py").write_text(SHOP.format(url=urls["app"]))
    for name, url in urls.items():
        with library.open(url) as log:
            log.append("orders", {"log": name}, type="order.created")

    def groups() -> list[str]:
        found = []
        for name, url in urls.items():
            with library.open(url) as log:
                found += [name] * bool(log.groups())
        return found

    for arguments, environment, expected in (
        ((), {}, ["app"]),
        ((), {"PENSTOCK_URL": urls["environment"]}, ["app"]),
        (("--url", urls["option"]), {"PENSTOCK_URL": urls["environment"]}, ["app", "option"]),
    ):
        with penstock(tmp_path, "run", "shop.py", *DRAIN, *arguments, environment=environment) as running:
            assert running.wait() == 0
        assert groups() == expected


@pytest.mark.parametrize("app", ["shop.py:app", "shop:app", "shop"])
def test_how_an_app_is_named(tmp_path: Path, app: str) -> None:
    shop = Shop(tmp_path, f"sqlite:///{tmp_path / 'log.db'}")
    shop.append(None)
    with shop.run(*DRAIN, "--processes", "2", "--json", app=app) as running:
        assert running.wait() == 0
    assert json.loads(running.out)["groups"]["orders/fraud"]["published"] == 1


# --- refusing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        (None, "app.py", "There is no file"),
        (None, "no_such_module:app", "There is no module no_such_module"),
        ("def (", "app.py", "SyntaxError"),
        ("raise KeyError('setting')", "app.py", "cannot be imported: KeyError: 'setting'"),
        ("import no_such_module", "app.py", "No module named 'no_such_module'"),
        ("raise SystemExit(3)", "app.py", "SystemExit"),
        ("import penstock", "app.py", "has none"),
        ("from penstock import App\na = App()\nb = App()", "app.py", "has 2: a, b"),
        ("from penstock import App\na = App()", "app.py:b", "has no App called 'b'"),
        ("from penstock import App\na = App()\na.run('local')", "app.py", 'if __name__ == "__main__"'),
        (None, ":app", "Name an app as"),
    ],
)
def test_an_app_that_cannot_be_loaded(
    command: Command, tmp_path: Path, text: str | None, named: str, message: str
) -> None:
    if text is not None:
        (tmp_path / "app.py").write_text(text)
    where = tmp_path / named if named.startswith("app.py") else named
    refused = command("run", where, *LOCAL, "--json", "--url", f"sqlite:///{tmp_path / 'log.db'}")
    assert refused.code == 2
    assert refused.error == "app_not_found"
    assert message in refused.json["error"]["message"]
    assert not (tmp_path / "log.db").exists()


@pytest.mark.parametrize(
    ("declared", "code"),
    [
        ("@app.pipeline('orders', group='g', sink='numbers')", "invalid_pipeline"),
        ("@app.query('orders', group='g', sink=sinks.Stream('totals'), output_mode='complete')", "invalid_query"),
    ],
)
def test_a_declaration_that_is_wrong_has_its_own_code(
    command: Command, tmp_path: Path, declared: str, code: str
) -> None:
    body = "from penstock import App, sinks\napp = App()\n{}\ndef work(rows):\n    return rows\n"
    (tmp_path / "app.py").write_text(body.format(declared))
    refused = command("run", tmp_path / "app.py", "--json", "--url", f"sqlite:///{tmp_path / 'log.db'}")
    assert (refused.code, refused.error) == (1, code)
    assert not (tmp_path / "log.db").exists()


def test_an_app_without_handlers(command: Command, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from penstock import App\napp = App()")
    refused = command("run", tmp_path / "app.py", *LOCAL, "--json")
    assert (refused.code, refused.error) == (2, "invalid_input")


def test_an_unknown_group(command: Command, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SHOP.format(url=f"sqlite:///{tmp_path / 'log.db'}"))
    refused = command("run", tmp_path / "app.py", *LOCAL, "--group", "fraud", "--group", "frauds", "--json")
    assert (refused.code, refused.error) == (1, "unknown_group")
    assert "fraud, mail" in refused.json["error"]["message"]
    assert refused.json["error"]["hint"].startswith("Did you mean 'fraud'?")


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (("--processes", "2"), 2, "invalid_input"),
        (("--engine", "local", "--master", "local[2]"), 2, "invalid_input"),
        (("--engine", "flink"), 2, "usage"),
        ((*LOCAL, "--processes", "0"), 2, "usage"),
        ((*LOCAL, "--processes", "65"), 2, "usage"),
        ((*LOCAL, "--processes", "two"), 2, "usage"),
    ],
)
def test_engines_and_processes_that_are_not_there(
    command: Command, tmp_path: Path, options: tuple[str, ...], code: int, error: str
) -> None:
    (tmp_path / "app.py").write_text(SHOP.format(url=f"sqlite:///{tmp_path / 'log.db'}"))
    refused = command("run", tmp_path / "app.py", *options, "--json")
    assert (refused.code, refused.error) == (code, error)


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(url=None))
    url = f"sqlite:///{tmp_path / 'no' / 'such' / 'directory.db'}"
    with penstock(tmp_path, "run", "shop.py", *DRAIN, "--url", url, "--json") as running:
        assert running.wait() == 1
    assert json.loads(running.out)["error"]["code"] == "store_unavailable"


# --- stopping --------------------------------------------------------------------------------------------------------


def start_and_wait(shop: Shop, *arguments: object, at_gate: int = 1, **more: object) -> Running:
    """Two leases for each process: three easy events and one that waits at the gate; the rest is not begun."""
    for _ in range(2 * at_gate):
        shop.append(*[None] * 3, "wait", *[None] * 6)
    running = shop.run(*LOCAL, "--group", "fraud", *arguments, **more)
    running.wait_until(lambda: len(shop.waiting()) == at_gate, "handlers at the gate")
    return running


@pytest.mark.shows("K17")
@pytest.mark.parametrize(
    ("log_url", "processes", "number"),
    [
        ("sqlite", 1, signal.SIGTERM),
        ("sqlite", 2, signal.SIGINT),
        ("postgresql", 1, signal.SIGINT),
        ("postgresql", 2, signal.SIGTERM),
    ],
    indirect=["log_url"],
)
def test_a_signal_stops_gracefully(shop: Shop, processes: int, number: signal.Signals) -> None:
    shop.log_everything()
    with start_and_wait(shop, "--processes", processes, at_gate=processes) as running:
        running.process.send_signal(number)
        running.wait_for_words("a second signal exits at once")
        if processes > 1:
            running.wait_until(lambda: running.err.count("is stopping") == processes, "all members to know")
        shop.gate.open()
        assert running.wait() == 0
    done, back = 4 * processes, 16 * processes
    assert shop.counts() == {"PUBLISHED": done, "PENDING": back, "failures": 0}
    (line,) = running.out.splitlines()
    assert f"published={done} failed=0 dead=0 released=" in line and "deaths=0 lost=0" in line
    assert running.err.count("stopping:") == 1
    with library.open(shop.url) as log:  # nothing has to expire first
        lease = log.claim("orders", "fraud", limit=100, claimed_by="test")
        assert lease is not None


@on_one_and_two_processes
def test_a_second_signal_exits_at_once(shop: Shop, processes: int) -> None:
    with start_and_wait(shop, "--processes", processes, at_gate=processes) as running:
        everybody = {pid for pair in shop.waiting() for pid in pair} - {running.pid}
        with watching(*everybody) as wait_for_all:
            running.process.send_signal(signal.SIGINT)
            running.wait_for_words("a second signal exits at once")
            running.process.send_signal(signal.SIGTERM)
            assert running.wait() == 128 + signal.SIGTERM
            wait_for_all()
    assert running.out == ""
    counts = shop.counts()
    assert counts["CLAIMED"] >= 10 * processes and counts["failures"] == 0 and "PUBLISHED" not in counts


def test_ctrl_c_on_a_terminal_is_for_the_foreground_process_alone(shop: Shop) -> None:
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    shop.log_everything()
    terminal = {"stdin": theirs, "stderr": theirs, "start_new_session": True, "preexec_fn": take_terminal}
    try:
        with start_and_wait(shop, "--processes", 2, "--json", at_gate=2, **terminal) as running:
            assert all(os.getsid(engine) == engine for _, engine in shop.waiting())
            os.write(ours, b"\x03")
            shown = read_until(ours, b"a second signal exits at once", *[b"is stopping"] * 2)
            shop.gate.open()
            assert running.wait() == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert json.loads(running.out)["member_deaths"] == 0
    assert b"Traceback" not in shown
    assert shop.counts() == {"PUBLISHED": 8, "PENDING": 32, "failures": 0}


def read_until(descriptor: int, *words: bytes) -> bytes:
    """What a terminal shows until all of these have been on it; one that is named twice, twice."""
    seen = b""
    while any(seen.count(one) < words.count(one) for one in words):
        seen += os.read(descriptor, 65536)
    return seen


# --- what is shown meanwhile -----------------------------------------------------------------------------------------


@on_one_and_two_processes
def test_a_summary_lives_on_a_terminal(shop: Shop, processes: int) -> None:
    ours, theirs = pty.openpty()
    try:
        with start_and_wait(
            shop, "--processes", processes, "--until-drained", at_gate=processes, stderr=theirs
        ) as running:
            shown = read_until(ours, f" {20 * processes}\r\n".encode())  # pending
            shop.gate.open()
            shown += read_until(ours, b"\x1b[?25h")  # the cursor is back
            assert running.wait() == 0
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"orders/fraud" in shown
    for column in (b"published", b"failed", b"dead", b"released", b"rate", b"pending"):
        assert column in shown
    last = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.decode()).split("group")[-1]
    assert re.search(rf"orders/fraud +━+ +{20 * processes} +0 +0 +0 +[\d,]+/s +0\s+0:00:\d\d", last), last
    assert running.out.count("\n") == 1


def test_a_summary_shows_no_zeros_before_there_is_anything_to_count() -> None:
    served = [types.SimpleNamespace(stream="orders", group="fraud", name="orders/fraud")]
    console = Console(file=io.StringIO(), width=60)
    display = Display(False, None, served, starting="Spark is starting")  # type: ignore[arg-type]
    console.print(display.render())
    assert re.fullmatch(r"Spark is starting … 0:00:0\d\s*", console.file.getvalue())  # type: ignore[attr-defined]
    display(RunProgressed({"orders/fraud": {"published": 9_876_543_210, "failed": 594, "dead": 0, "released": 0}}))
    console = Console(file=io.StringIO(), width=60)
    display._console = console
    console.print(display.render())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "9,876,543,210" in shown and "594" in shown and "starting" not in shown


def test_a_summary_that_cannot_ask_the_store_ends_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def stats(log: library.Log) -> None:
        asked.append(log)
        raise library.StoreUnavailable

    monkeypatch.setattr(library.Log, "stats", stats)
    monkeypatch.setattr("penstock.cli.session.Session.progress_wanted", lambda session: True)
    url = f"sqlite:///{tmp_path / 'log.db'}"
    (tmp_path / "app.py").write_text(SHOP.format(url=url))
    with library.open(url) as log:
        log.append("orders", {}, type="order.created")
    done = command("run", tmp_path / "app.py", *DRAIN)
    assert done.code == 0 and "published=2 " in done.out
    assert asked


@on_one_and_two_processes
def test_warnings_are_plain_lines(shop: Shop, processes: int) -> None:
    shop.append("unavailable")
    with shop.run(*DRAIN, "--quiet", "--processes", processes) as running:
        assert running.wait() == 0
    lines = running.err.splitlines()
    assert 1 <= len(lines) <= processes, "each process says it once"
    for line in lines:
        assert re.fullmatch(
            r"orders/fraud: the target is unavailable \(the target is down\); next try in [\d.]+ s", line
        )


@on_one_and_two_processes
def test_an_app_that_configures_logging_gets_its_warnings_once(shop: Shop, processes: int) -> None:
    file = shop.directory / "shop.py"
    file.write_text(f"import logging\nlogging.basicConfig(format='seen %(message)s')\n{file.read_text()}")
    shop.append("unavailable")
    with shop.run(*DRAIN, "--quiet", "--processes", processes) as running:
        assert running.wait() == 0
    lines = running.err.splitlines()
    assert 1 <= len(lines) <= processes
    assert all(line.startswith("seen orders/fraud: the target is unavailable") for line in lines)


@pytest.mark.shows("O01", "J17")
@on_one_and_two_processes
def test_a_run_is_listed_and_stopped_from_afar(shop: Shop, command: Command, processes: int) -> None:
    """`penstock stop` ends a run as Ctrl-C does: what was claimed is finished, nothing counts as a failure."""
    shop.append(*[None] * ORDERS)
    with shop.run(*LOCAL, "--processes", processes) as running:
        running.wait_until(lambda: shop.groups() == {"fraud", "mail"}, "its groups are there")
        running.wait_until(lambda: shop.counts().get("PUBLISHED") == ORDERS, "all is done")
        (row,) = command("runs", "--url", shop.url, "--json").json["runs"]
        assert (row["app"], row["engine"], row["state"]) == ("shop", "local", "running")
        assert row["groups"] == ["orders/fraud", "orders/mail"] and row["pid"] == running.pid
        assert str(row["id"]) in command("runs", "--url", shop.url).out
        told = command("stop", "--url", shop.url, "--by", "ada", "--json")
        assert told.code == 0 and told.json["wanted"] == "stop"
        assert running.wait() == 0
    assert command("runs", "--url", shop.url, "--json").json == {"runs": []}
    (row,) = command("runs", "--all", "--url", shop.url, "--json").json["runs"]
    assert (row["state"], row["outcome"]) == ("ended", "stopped")
    assert command("stop", "--url", shop.url).code == 2  # nobody is at work
    assert command("stop", "999", "--url", shop.url, "--json").error == "unknown_run"
