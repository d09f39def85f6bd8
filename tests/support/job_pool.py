"""An app of jobs in a file, run by `penstock worker` in several processes, and a check of what became of its jobs."""

from __future__ import annotations

import random
import signal
import sqlite3
from collections import Counter
from contextlib import closing, suppress
from os import kill
from pathlib import Path

import penstock as library
from tests.support.done_table import create_done_table, done_offsets
from tests.support.raw_sql import raw
from tests.support.running import PYTHONPATH, Gate, Running, penstock

APP = """
import os
import time
from penstock import App, Retry
from tests.support.notes import write_note

app = App(None, name="shop")
policy = dict(lease_seconds=2, heartbeat_seconds=0.3, retry=Retry(max_attempts=50, base_seconds=0))

@app.job("work", **policy)
def work(payload, ctx):
    ctx.execute("insert into done (n, name) values (?, ?)", (payload["n"], "work"))
    time.sleep(payload.get("seconds", 0))
    return {"n": payload["n"]}

@app.job("wait", **policy)
def wait(payload, ctx):
    write_note(f"{payload['n']} {os.getppid()} {ctx.job.attempts}")
    ctx.execute("insert into done (n, name) values (?, ?)", (payload["n"], "wait"))
    open(payload["gate"]).close()

@app.schedule("0 3 * * *")
def nightly():
    pass
"""


class JobPool:
    """The directory of the app, and the URL of its log."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory, self.url = directory, url
        self.gate = Gate(directory / "gate")
        self.notes = directory / "notes"
        (directory / "app.py").write_text(APP)
        library.open(url).close()
        create_done_table(url)

    def submit(self, kind: str, count: int, **payload: object) -> list[str]:
        with library.open(self.url) as log:
            jobs = [{"payload": {"n": n, "gate": str(self.directory / "gate"), **payload}} for n in range(count)]
            return [str(one) for one in log.submit_many(kind, jobs).ids]

    def run(self, *arguments: object, processes: int = 2, command: tuple[str, ...] = ("worker",)) -> Running:
        verb, *more = command
        given = (verb, "app.py", *more, "--processes", processes, "--url", self.url, "--json", *arguments)
        environment = {"PYTHONPATH": PYTHONPATH, "PENSTOCK_NOTES": str(self.notes)}
        return penstock(self.directory, *given, environment=environment)

    def members(self) -> set[int]:
        """The pool processes that hold a lease now; claimed_by is host/pid."""
        with raw(self.url) as sql:
            found = sql("select distinct claimed_by from penstock.leases where outcome is null")
        return {int(str(one).rpartition("/")[2]) for (one,) in found}

    def lost_by(self, pid: int) -> bool:
        """Whether somebody has taken a lease from this process."""
        with raw(self.url) as sql:
            found = sql("select claimed_by from penstock.leases where outcome = 'expired'")
        return any(str(one).endswith(f"/{pid}") for (one,) in found)

    def statuses(self) -> Counter[str]:
        with library.open(self.url) as log:
            return Counter(str(one.status) for one in log.jobs(limit=100_000))

    def check(self, count: int) -> None:
        """Every job of `work` is done: one success, one effect, its result; nothing is held by anybody."""
        with library.open(self.url) as log:
            jobs = log.jobs(type="work", limit=100_000)
            assert Counter(str(one.status) for one in jobs) == {"PUBLISHED": count}
            assert [one.result for one in jobs] == [{"n": n} for n in range(count)]
            again = [one for one in jobs if one.attempts > 1]
            for one in again:
                history = log.delivery(one.stream, "workers", one.id).history
                assert Counter(entry.outcome for entry in history)["published"] == 1, history
        assert sorted(done_offsets(self.url)) == list(range(count)), "an effect is missing, or there twice"
        with raw(self.url) as sql:
            assert sql("select count(*) from penstock.leases where outcome is null") == [(0,)]

    def freeze(self, pid: int) -> None:
        """Stop a process; on SQLite not inside of a transaction, in which it would hold up everybody."""
        kill(pid, signal.SIGSTOP)
        while self.url.startswith("sqlite") and not _may_write(self.url):
            kill(pid, signal.SIGCONT)
            kill(pid, signal.SIGSTOP)


def _may_write(url: str) -> bool:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=1)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        connection.execute("rollback")
        return True


def attack(pool: JobPool, running: Running, rounds: int, every: int, seed: int) -> list[str]:
    """Kill or freeze a process at random, each time after so many more jobs; a frozen one goes on when it has lost."""
    chance = random.Random(seed)
    done: list[str] = []
    for number in range(1, rounds + 1):
        running.wait_until(
            lambda least=number * every: len(done_offsets(pool.url)) >= least and bool(pool.members()),  # type: ignore[misc]
            "some work",
        )
        victim = chance.choice(sorted(pool.members()))
        how = "kill" if number % 2 else "freeze"
        with suppress(ProcessLookupError):  # dead already: its lease is not taken back yet
            if how == "kill":
                kill(victim, signal.SIGKILL)
            else:
                pool.freeze(victim)
            done.append(how)
            if how == "freeze":
                running.wait_until(lambda pid=victim: pool.lost_by(pid), "its leases to be lost")  # type: ignore[misc]
                kill(victim, signal.SIGCONT)
    return done
