"""An import that is killed or cut off goes on where it stopped: nothing is lost, nothing is there twice."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.imports import run
from penstock.log.transact import transact
from penstock.testing import CrashPoint
from tests.support.cutting_proxy import CuttingProxy
from tests.support.forks import killed_in_child
from tests.support.import_sources import (
    claimable,
    execute,
    fill_outbox,
    import_all,
    log_states,
    outbox,
    outbox_states,
    target,
)
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.shows("R13")
MEASURED = """
import resource, sys
from penstock.cli.app import run
code = run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.shows("X02")
@pytest.mark.timeout(300)
def test_killed_at_every_statement_it_goes_on(log_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run after the other dies one statement later than the last, until one gets to the end."""
    monkeypatch.setattr(run, "IMPORT_BATCH", 12)
    fill_outbox(postgres_url, 40)
    penstock.open(log_url).close()
    settings = target(ordering="key", lanes=2)
    deaths = 0
    for number, when in ((number, when) for number in itertools.count(1) for when in ("before", "after")):
        point = CrashPoint(when, number)

        def work(point: CrashPoint = point) -> None:
            log = penstock.open(log_url, hook=point)
            point.arm()
            import_all(log, outbox(postgres_url, target=settings))

        if not killed_in_child(work):
            break
        deaths += 1
    assert deaths > 40
    with penstock.open(log_url) as log:
        assert log_states(log) == outbox_states(postgres_url)
        assert len(log.read("orders")) == 40
        again = import_all(log, outbox(postgres_url, target=settings))
        assert again.before and again.complete and again.tally.copied == 40


@pytest.mark.shows("X03", "K42")
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_connection_to_the_log_cut_at_any_statement_loses_nothing(
    postgres: PostgresServer, postgres_log_url: str, postgres_url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 15)
    fill_outbox(postgres_url, 30)
    cuts = 0
    with CuttingProxy(postgres.port) as proxy:
        for number in itertools.count(1):
            with penstock.open(proxy.url(postgres_log_url)) as log:
                proxy.cut_at(number, how)  # type: ignore[arg-type]
                try:
                    import_all(log, outbox(postgres_url))
                    break
                except PenstockError as error:
                    assert error.code in ("store_unavailable", "commit_unknown"), error
                    cuts += 1
                finally:
                    proxy.cut_when(lambda statement: None)
    assert cuts > 10
    with penstock.open(postgres_log_url) as log:
        assert log_states(log) == outbox_states(postgres_url)
        assert len(log.read("orders")) == 30


def test_a_source_that_goes_away_is_said_and_the_import_goes_on(
    log: penstock.Log, postgres: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 300)
    fill_outbox(postgres_url, 1_500)
    with CuttingProxy(postgres.port) as proxy:
        source = outbox(proxy.url(postgres_url))
        proxy.cut_when(lambda statement: "before" if log.read("orders", limit=1) else None)
        with pytest.raises(penstock.PenstockError, match="The source does not answer") as raised:
            import_all(log, source)
        assert raised.value.code == "source_unavailable"
        proxy.cut_when(lambda statement: None)
        stored = len(log.read("orders", limit=5_000))
        assert 0 < stored < 1_500
        report = import_all(log, outbox(proxy.url(postgres_url)))
    assert report.tally.known == 0, "it goes on behind what is stored"
    assert log_states(log) == outbox_states(postgres_url)


@pytest.mark.timeout(600)
def test_two_hundred_thousand_rows_with_flat_memory_and_a_kill_in_the_middle(
    postgres_log_url: str, postgres: PostgresServer, postgres_url: str
) -> None:
    small, large = 10_000, 200_000
    other = postgres.create_database("penstock_import_small")
    first = _measured(_start(other, _table(other, small), "few"))
    url = _table(postgres_url, large)
    dying = _start(postgres_log_url, url, "relay")
    with penstock.open(postgres_log_url) as log:
        wait_until(lambda: log.read("orders", after=20_000, limit=1) != [], "the import to store some")
        os.kill(dying.pid, signal.SIGKILL)
        dying.communicate()
        second = _measured(_start(postgres_log_url, url, "relay"))
        counts = dict(execute(url, "select state, count(*) from openoutbox_events group by 1"))
        group = log.stats().groups[0]
        assert (group.published, group.dead) == (counts["PUBLISHED"], counts["DEAD"])
        assert group.pending == counts["PENDING"] + counts["CLAIMED"]
    assert second - first < 30_000, f"{first:,} KB for {small:,} rows, {second:,} KB for {large:,}"


def _table(url: str, rows: int) -> str:
    """Nearly everything is finished, as in life."""
    fill_outbox(url, rows)
    execute(
        url,
        "update openoutbox_events set state = 'PUBLISHED' where state <> 'PUBLISHED' and random() < 0.95",
    )
    return url


def _start(log_url: str, source: str, group: str) -> subprocess.Popen[str]:
    command = ("import", "outbox", "--into", "orders", "--group", group, "--url", log_url, "--quiet")
    return subprocess.Popen(
        [sys.executable, "-c", MEASURED, *command],
        env={**os.environ, "PENSTOCK_IMPORT_FROM": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _measured(process: subprocess.Popen[str]) -> int:
    """How many kilobytes it needed at most."""
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, said + errors
    return int(errors.splitlines()[-1])


def test_what_is_left_of_an_import_is_only_its_record(log: penstock.Log, log_url: str, postgres_url: str) -> None:
    fill_outbox(postgres_url, 40)
    import_all(log, outbox(postgres_url))
    with log.store.transaction(write=False) as tx:
        group = log.groups("orders")[0]
        assert tx.one("import.reach", group_id=group.group_id).high is None
        record = tx.one("import.locked", id=1)
    assert record.state == "done" and "secret" not in repr(record)
    assert not group.paused and claimable(log)


def test_many_short_ranges_of_finished_events_are_settled_in_one_pass(tmp_path: Path) -> None:
    many = 4_000
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.append_many("orders", [{"payload": {}, "type": "t"}] * (2 * many))
        group = log.create_group("orders", "relay")
        steps: list[None] = []

        def work(tx: Any) -> int:
            rows = [{"low": 2 * n, "high": 2 * n + 1} for n in range(many)]
            tx.run("import.add_ranges", group_id=group.group_id, rows=rows)
            tx._connection.set_progress_handler(lambda: steps.append(None), 1_000)
            params = {"group_id": group.group_id, "stream": "orders", "group_name": "relay", "now": tx.now()}
            made = tx.run("import.rest_rows", low=0, high=2 * many, **params)
            tx._connection.set_progress_handler(None, 0)
            return int(made)

        assert transact(log.store, work) == many
        assert len(steps) < 3_000, "thousands of steps of SQLite: so many for each event, not for each event and range"
