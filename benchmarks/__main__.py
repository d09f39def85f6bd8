"""`./run bench [NAME …]`: measure, print the table, and with --write put it into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import (
    appending,
    backlog,
    claiming,
    connect,
    costs,
    crowds,
    engine,
    jobs,
    looking,
    operate,
    peers,
    pipelines,
    pruning,
    spark,
)
from benchmarks.measuring import Figure, Line
from tests.support.postgres_server import PostgresServer

SUITES: dict[str, Callable[[PostgresServer], list[Figure]]] = {
    "append": appending.run,
    "claim": claiming.run,
    "backlog": backlog.run,
    "costs": costs.run,
    "crowds": crowds.run,
    "look": looking.run,
    "prune": pruning.run,
    "engine": engine.run,
    "spark": spark.run,
    "pipelines": pipelines.run,
    "peers": peers.run,
    "jobs": jobs.run,
    "connect": connect.run,
    "operate": operate.run,
}
HEADER = ("what", "median", "worst", "wanted", "reached", "detail of the median")
PAGE = Path("docs/benchmarks.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help="which figures (default: all)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE}")
    parser.add_argument("--runs", type=int, default=1, help="how often, each on a new server (default: 1)")
    parser.add_argument("--against", action="append", metavar="COMMIT", help="compare handlers with those of a commit")
    parser.add_argument("--what", action="append", help="with --against: only this kind of work (default: all)")
    options = parser.parse_args()
    if options.against:
        return against(parser, options)
    taken: dict[str, list[list[Figure]]] = {}
    console = Console()
    bar = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console)
    with bar:
        for run in range(options.runs):
            with PostgresServer(fsync=True, settings=SETTINGS) as server:
                for name in options.suite or SUITES:
                    task = bar.add_task(f"measuring {name}, {run + 1} of {options.runs}", total=1)
                    taken.setdefault(name, []).append(SUITES[name](server))
                    bar.update(task, completed=1)
                version = ".".join(map(str, server.version))
    lines = {suite: [Line(runs) for runs in zip(*found, strict=True)] for suite, found in taken.items()}
    table = Table(*HEADER)
    for line in (line for suite in lines.values() for line in suite):
        table.add_row(*line.row())
    console.print(table)
    if options.write:
        for suite, found in lines.items():
            write(suite, found, version, options.runs)
    return 0 if all(line.median.reached is not False for found in lines.values() for line in found) else 1


def against(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Compare this tree with earlier ones; `--runs` is the number of turns."""
    from benchmarks.turns import WORK, compare

    if not options.suite or not {*options.suite} <= {"engine", "spark", "peers"}:
        parser.error("--against takes the suites engine, spark and peers")
    for name in options.suite:
        drains = [what for what in WORK[name] if not options.what or what in options.what]
        compare(name, options.against, max(3, options.runs), drains, SETTINGS, Console())
    return 0


SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB", "autovacuum": "on"}


def write(suite: str, figures: list[Line], version: str, runs: int) -> None:
    """Replace the part of the page between the two marks of a suite."""
    begin, end = f"<!-- figures {suite} -->", f"<!-- /figures {suite} -->"
    lines = [
        begin,
        f"Taken on {datetime.date.today().isoformat()}, {platform.machine()}, 2 cores, "
        f"Python {platform.python_version()}, PostgreSQL {version}, `fsync=on`, {runs} runs.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + "---|" * len(HEADER),
        *("| " + " | ".join(line.row()) + " |" for line in figures),
        end,
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    PAGE.write_text(before + "\n".join(lines) + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
