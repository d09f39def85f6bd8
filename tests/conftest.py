"""Fixtures of every test, and the rule that unexpected skips fail a strict run."""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import class_archive, skips
from tests.support.logs import (  # noqa: F401  # fixtures of every test
    clock,
    clocked,
    log,
    log_url,
    make_log,
    postgres_log,
    postgres_log_url,
    template,
)
from tests.support.pgbouncer import NotInstalled, PgBouncer
from tests.support.postgres_server import PostgresServer, available_servers
from tests.support.spark_cluster import spark_cluster  # noqa: F401  # a fixture
from tests.support.spark_session import spark  # noqa: F401  # a fixture
from tests.support.thinned import THINNED

HERE = Path(__file__).parent
PROVE_SECONDS = 1800
CHECKS = (
    *("chaos", "driver_kill", "faults", "forks", "hostile_writers", "local_engine", "log_steps"),
    *("scripted_events", "spark_engine", "spark_pipeline", "store_against_model", "true_stats"),
)
pytest.register_assert_rewrite(*(f"tests.support.{name}" for name in CHECKS))  # show values, as in test files


@pytest.fixture(autouse=True)
def signals_as_found() -> Iterator[None]:
    """Nothing leaves SIGTERM ignored: processes started later would inherit that, and not stop."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file for notes of handlers; they find it in $PENSTOCK_NOTES."""
    path = tmp_path / "notes"
    monkeypatch.setenv("PENSTOCK_NOTES", str(path))
    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The newest PostgreSQL on this machine, one server per run (with xdist: one per worker)."""
    if not available_servers():
        pytest.skip("no PostgreSQL server binaries found")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """An empty database for this test."""
    name = f"t_{uuid.uuid4().hex[:16]}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """PgBouncer in transaction mode in front of `postgres`."""
    try:
        bouncer = PgBouncer(postgres)
    except NotInstalled as error:
        pytest.skip(str(error))
    with bouncer:
        yield bouncer


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", class_archive.SHORT_LIVED)  # the launcher has a class path of its own
    os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive.jvm_options())
    config.pluginmanager.register(SkipGuard(config), "penstock-skip-guard")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:  # noqa: F811  # xdist chose the names
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.two_ends import TwoEnds

    return TwoEnds(config, log)


# First, so that the marks exist when -m selects.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
        if item.path.is_relative_to(HERE / "prove"):
            item.add_marker("slow")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(PROVE_SECONDS))
        if item.name in THINNED.get(item.nodeid.partition("::")[0], ()):
            item.add_marker("slow")


class SkipGuard:
    """Fails a strict run (CI or PENSTOCK_STRICT_SKIPS) over skips that tests/skips.txt does not list."""

    def __init__(self, config: pytest.Config) -> None:
        self.skipped: set[str] = set()
        self.unexpected: list[str] = []
        # With xdist every worker sends what it skipped to the controller, which decides.
        self.sends_to: dict[str, object] | None = getattr(config, "workeroutput", None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.sends_to is not None:
            self.sends_to["skipped"] = sorted(self.skipped)
            return
        if not skips.strict():
            return
        allowed = skips.read_allowed(HERE / "skips.txt")
        self.unexpected = skips.unexpected(self.skipped, allowed)
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.skipped.update(getattr(node, "workeroutput", {}).get("skipped", ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if nodeids := self.unexpected:
            terminalreporter.section("skipped, but not listed in tests/skips.txt", red=True, bold=True)
            for nodeid in nodeids:
                terminalreporter.line(nodeid, red=True)
