"""Archives and restores whose processes are killed, while retention runs beside them and a group works."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyarrow import parquet

import penstock
from tests.support.log_steps import claim_and_settle_all
from tests.support.postgres_server import PostgresServer
from tests.support.running import penstock as started
from tests.support.waiting import wait_until

EVENTS = 60_000
TIMES = 6


def offsets_in(place: Path) -> list[int]:
    """Of all events in finished files."""
    files = [path for path in place.rglob("*.parquet") if not any(part.startswith("_") for part in path.parts)]
    return sorted(one for path in files for one in parquet.ParquetFile(path).read(["offset"])["offset"].to_pylist())


@pytest.mark.shows("O05", "K48")
@pytest.mark.timeout(600)
def test_killed_archives_and_restores_are_completed_once(tmp_path: Path) -> None:
    """Each event is in one file, and after the restore in the log again, once."""
    rng = random.Random(7)
    place = tmp_path / "cold"
    with PostgresServer() as server, penstock.open(server.create_database()) as log:
        url = log.store.url
        log.create_group("orders", "g", ordering="key", lanes=2)
        log.append_many("orders", [{"payload": n, "type": "t", "ordering_key": f"k{n % 9}"} for n in range(EVENTS)])
        claim_and_settle_all(log, limit=10_000)
        before = [(one.offset, one.event_id, one.payload) for one in log.read("orders", limit=EVENTS)]

        died_at_work: Counter[str] = Counter()

        def killed(*command: object, when: int) -> None:
            """Kill it when it has written so many files, or has restored so many events, unless it ends before."""
            directory = tmp_path / f"run-{rng.random()}"
            directory.mkdir()
            with started(directory, *command, "--url", url) as running:

                def far_enough() -> bool:
                    written = sum(1 for _ in place.rglob("*")) if command[0] == "archive" else len(log.read("orders"))
                    return written > when or running.process.poll() is not None

                wait_until(far_enough, "it is far enough", seconds=90)
                died_at_work[str(command[0])] += running.process.poll() is None

        for time in range(TIMES):
            killed("archive", "orders", place, when=rng.choice([0, 1, 2, 4, 8, 12]))
            log.append("orders", {"later": time}, type="t", ordering_key="later")
        claim_and_settle_all(log)
        everything = [one.offset for one in log.read("orders", limit=EVENTS + TIMES)]
        assert started_to_its_end(tmp_path, "archive", "orders", place, "--url", url) == 0
        assert {one.state for one in log.archives("orders")} == {"done"}
        assert offsets_in(place) == everything

        log.set_retention("orders", keep=0.0, archive=str(place))
        wait_until(lambda: not log.apply_retention().more and not log.read("orders"), "all have left", seconds=60)
        for _ in range(TIMES):
            killed("restore", "orders", when=rng.choice([0, 500]))
            log.apply_retention()
        assert started_to_its_end(tmp_path, "restore", "orders", "--url", url) == 0
        log.apply_retention()  # restored events stay for a while
        after = [(one.offset, one.event_id, one.payload) for one in log.read("orders", limit=EVENTS + TIMES)]
        assert after[:EVENTS] == before and [one[0] for one in after] == everything
        assert min(died_at_work["archive"], died_at_work["restore"]) >= TIMES // 2, died_at_work
        numbers = log.stats("orders", "g").groups[0]
        assert (numbers.published, numbers.lag) == (EVENTS + TIMES, 0)
        log.rewind("orders", "g", to="beginning")
        assert len(set(claim_and_settle_all(log, limit=10_000))) == EVENTS + TIMES


def started_to_its_end(directory: Path, *command: object) -> int:
    where = directory / f"last-{command[0]}"
    where.mkdir()
    with started(where, *command) as running:
        wait_until(lambda: running.process.poll() is not None, "it has ended", seconds=120)
        return running.process.returncode or 0
