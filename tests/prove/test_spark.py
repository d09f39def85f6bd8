"""Spark at length: 200,000 events with poison among them, and repeated kills of every kind of process."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock as library
from tests.support.children import handlers, large_read, small_driver
from tests.support.declarations import subscription
from tests.support.done_table import done_offsets
from tests.support.running import PYTHONPATH, Running
from tests.support.spark_engine import run_on_spark_until_drained
from tests.support.spark_shop import SparkShop
from tests.support.waiting import wait_until

COUNT = 200_000
KILLS = 8
GIGABYTE = 260_000  # events of 4 kB
MANY = 5_000_000
OLDEST = """select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"""


@pytest.mark.shows("S02")
def test_one_percent_poison_in_200_000_is_dead_and_nothing_else_is(spark: Any, postgres_log: library.Log) -> None:
    log = postgres_log
    bad = {n for n in range(COUNT) if n % 100 == 7}
    for stream, skip in (("orders", set[int]()), ("clean", bad)):
        events = [
            {"payload": {"do": "raise" if n in bad - skip else None}, "type": "t", "ordering_key": f"k{n % 1000}"}
            for n in range(COUNT)
            if n not in skip
        ]
        for first in range(0, len(events), 50_000):
            log.append_many(stream, events[first : first + 50_000])
    run_on_spark_until_drained(spark, log, subscription(handlers.seen), subscription(handlers.seen, stream="clean"))
    dead = [one.offset for one in log.deliveries("orders", "g", state="DEAD", limit=10_000)]
    assert dead == sorted(n + 1 for n in bad)
    for key in range(1000):
        assert log.state("orders", "g", f"k{key}") == log.state("clean", "g", f"k{key}")


@pytest.mark.shows("S03")
def test_random_kills_of_driver_jvm_and_workers_lose_nothing(tmp_path: Path, postgres_log_url: str) -> None:
    """Kill the driver, its JVM, a Python worker or a handler's process at random; then run to the end."""
    library.open(postgres_log_url).close()
    shop, chance = SparkShop(tmp_path, postgres_log_url), random.Random(20)
    shop.append(3_000, seconds=0.003)
    for number in range(KILLS):
        with shop.run("--until-drained") as running:
            before = len(done_offsets(shop.url))
            running.wait_until(lambda before=before: len(done_offsets(shop.url)) > before + 40, "some work")  # type: ignore[misc]
            victim = running.pid if number % 4 == 0 else chance.choice(_family(running))
            os.kill(victim, signal.SIGKILL)
            enough = len(done_offsets(shop.url)) + chance.randrange(60)  # the remaining processes may continue or not
            wait_until(
                lambda enough=enough: _ended(running) or len(done_offsets(shop.url)) >= enough,
                "the run to end or to continue",
                60,
            )  # type: ignore[misc]
    with shop.run("--until-drained", "--json") as running:
        assert running.process.wait(300) == 0, running.err
    json.loads(running.out)
    assert sorted(done_offsets(shop.url)) == list(range(1, 3_001))
    with psycopg.connect(shop.url) as sql:
        (left,) = sql.execute("select count(*) from penstock.leases where outcome is null").fetchone() or (1,)
    assert left == 0


def test_a_gigabyte_passes_with_a_driver_of_512_mb(tmp_path: Path, postgres_log: library.Log) -> None:
    """Neither the events nor the rows of a pipeline pass through the driver."""
    padding = "x" * 4_000
    for first in range(0, GIGABYTE, 10_000):
        events = [{"payload": {"n": first + n, "padding": padding}, "type": "t"} for n in range(10_000)]
        postgres_log.append_many("orders", events)
    script = [sys.executable, "-m", small_driver.__name__, postgres_log.store.url, tmp_path / "lake"]
    with Running(tmp_path, *script, environment={"PYTHONPATH": PYTHONPATH}) as running:
        assert running.process.wait(900) == 0, running.err
    report = json.loads(running.out.splitlines()[-1])
    assert (report["rows"], report["distinct"]) == (GIGABYTE, GIGABYTE)
    assert report["published"] == GIGABYTE and report["driver_mb"] < 512


def _ended(running: Running) -> bool:
    return running.process.poll() is not None


def _family(running: Running) -> list[int]:
    """The processes below the driver."""
    parents = {}
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                parents[int(one.name)] = int((one / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found = {running.pid}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


@pytest.mark.timeout(3_600)
@pytest.mark.shows("S28")
def test_five_million_events_are_read_with_a_driver_of_one_gigabyte(
    tmp_path: Path, postgres_log: library.Log, postgres_log_url: str
) -> None:
    with psycopg.connect(postgres_log_url, autocommit=True) as sql:
        for first in range(0, MANY, 500_000):
            sql.execute(
                "insert into penstock.events (stream, event_id, event_type, payload, content_type) "
                "select 'orders', gen_random_uuid(), 't', convert_to(json_build_object('n', n)::text, 'UTF8'), 'json' "
                "from generate_series(%s::bigint, %s::bigint) n",
                (first, first + 499_999),
            )
        sql.execute("vacuum analyze penstock.events")
        script = [sys.executable, "-m", large_read.__name__, postgres_log_url, tmp_path]
        held = [0.0]  # by the oldest transaction, in seconds

        def ended() -> bool:
            held.append(float((sql.execute(OLDEST).fetchone() or (0,))[0]))
            return running.process.poll() is not None

        with Running(tmp_path, *script, environment={"PYTHONPATH": PYTHONPATH}) as running:
            wait_until(ended, "the reads to end", 3_000)
            assert running.process.returncode == 0, running.err
    found = json.loads(running.out.splitlines()[-1])
    total = MANY * (MANY - 1) // 2
    assert (found["rows"], found["total"], found["streamed"]) == (MANY, total, [MANY, total])
    assert 90 <= found["partitions"] <= 110 and found["driver_mb"] < 500
    assert max(held) < 60, f"a snapshot was held for {max(held):.0f} s"
    assert postgres_log.stats().groups[0].published == MANY
