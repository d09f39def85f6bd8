"""`./run bench engine|spark|peers --against COMMIT`: this tree beside an earlier one, by turns of a few seconds.

Each version lives in a process of its own, with a database of its own on one server, and stays warm. Whatever slows the
machine down for minutes then meets all of them alike, which two whole runs, one after the other, do not share.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.support.postgres_server import PostgresServer

HERE = Path(__file__).resolve().parent.parent
DRAINS = ("inline", "isolated", "keyed", "never failing", "failing")
READING = "data source"
PROCESSES = ("one `penstock run`", "two of them")
WORK = {"engine": DRAINS, "spark": (*DRAINS, READING), "peers": PROCESSES}

# Runs in every version, so it uses only what all of them have.
_WORKER = """
import os, sys
engine, url = sys.argv[1:]
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what Spark or a handler prints is no answer
if engine == "peers":
    import pathlib, tempfile, uuid, psycopg
    from benchmarks import peers

    class Server:  # as far as it is needed
        def create_database(self):
            base, name = url.rpartition("/")[0], "p" + uuid.uuid4().hex
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("create database " + name)
            return base + "/" + name

    folder = tempfile.TemporaryDirectory()
    both = peers.Peers(Server(), pathlib.Path(folder.name))
    counts = {"one `penstock run`": 1, "two of them": 2}
    for line in sys.stdin:
        print(both._drain_ours(counts[line.strip()]), file=answers)
    sys.exit()
import time, psycopg, penstock
from benchmarks import engine as local, spark as sparks

log, sql = penstock.open(url), psycopg.connect(url, autocommit=True)
local.fill(log, "orders", sparks.WARM + sparks.EVENTS if engine == "spark" else local.EVENTS["orders"])
sql.execute("vacuum analyze")
if engine == "spark":
    session = sparks.session("local[2]")
    bench, failing = sparks.Bench(url, log, sql, session.__enter__()), "one_percent_behind"
else:
    bench, failing = local.Bench(url, log, sql), "one_percent"
drains = {
    "inline": lambda: bench.drain("parse", isolation="inline"),
    "isolated": lambda: bench.drain("parse"),
    "keyed": lambda: bench.drain("parse_and_count", isolation="inline"),
    "never failing": lambda: bench.drain("one_percent_never"),
    "failing": lambda: bench.drain(failing),
}
def read():
    frame = bench.spark.read.format("penstock").option("url", url).option("stream", "orders").load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return (sparks.WARM + sparks.EVENTS) / (time.perf_counter() - began)
drains["data source"] = read
for line in sys.stdin:
    print(drains[line.strip()](), file=answers)
"""


class Version:
    """One version at work: a process that drains a backlog when asked, and says how fast it was."""

    def __init__(self, tree: Path, engine: str, url: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
        command = [sys.executable, "-c", _WORKER, engine, url]
        self._process = subprocess.Popen(
            command, cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def drain(self, what: str) -> float:
        """Return events a second."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(what, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a version ended while it drained {what!r}; its error is above")
        return float(json.loads(answer))

    def stop(self) -> None:
        self._process.communicate()


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """A checkout of a commit, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="penstock-turns-") as name:
        tree = Path(name) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def compare(
    engine: str, commits: Sequence[str], rounds: int, drains: Sequence[str], settings: dict[str, str], console: Console
) -> None:
    """Print, for each kind of work, the median rate of every version and of its ratio to this tree's, turn by turn."""
    rates: dict[str, dict[str, list[float]]] = {what: {one: [] for one in (*commits, "here")} for what in drains}
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(fsync=True, settings=settings))
        trees = {commit: stack.enter_context(tree_of(commit)) for commit in commits} | {"here": HERE}
        versions = {}
        for name, tree in trees.items():
            versions[name] = Version(tree, engine, server.create_database())
            stack.callback(versions[name].stop)
        for number in track(range(rounds + 1), f"{engine}, by turns", console=console):
            for what in drains:
                for name in list(versions)[:: -1 if number % 2 else 1]:
                    rate = versions[name].drain(what)
                    if number:  # the first round warms up
                        rates[what][name].append(rate)
    table = Table("what", *(f"{one}, events/s" for one in rates[drains[0]]), *(f"here vs {one}" for one in commits))
    for what, found in rates.items():
        medians = [f"{statistics.median(rate):,.0f}" for rate in found.values()]
        pairs = ([mine / other for mine, other in zip(found["here"], found[one], strict=True)] for one in commits)
        table.add_row(what, *medians, *(f"{statistics.median(one):.3f} (worst {min(one):.3f})" for one in pairs))
    console.print(table)
