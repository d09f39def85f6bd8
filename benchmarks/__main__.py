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

from benchmarks import appending, backlog, claiming, costs, engine, looking, peers, pruning, spark
from benchmarks.measuring import Figure
from tests.support.postgres_server import PostgresServer

SUITES: dict[str, Callable[[PostgresServer], list[Figure]]] = {
    "append": appending.run,
    "claim": claiming.run,
    "backlog": backlog.run,
    "costs": costs.run,
    "look": looking.run,
    "prune": pruning.run,
    "engine": engine.run,
    "spark": spark.run,
    "peers": peers.run,
}
HEADER = ("what", "measured", "wanted", "reached", "detail")
PAGE = Path("docs/benchmarks.md")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help="which figures (default: all)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE}")
    options = parser.parse_args()
    taken: dict[str, list[Figure]] = {}
    console = Console()
    bar = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console)
    with PostgresServer(fsync=True, settings=SETTINGS) as server, bar:
        for name in options.suite or SUITES:
            task = bar.add_task(f"measuring {name}", total=1)
            taken[name] = SUITES[name](server)
            bar.update(task, completed=1)
        version = ".".join(map(str, server.version))
    table = Table(*HEADER)
    figures = [figure for suite in taken.values() for figure in suite]
    for figure in figures:
        table.add_row(*figure.row())
    console.print(table)
    if options.write:
        for suite, found in taken.items():
            write(suite, found, version)
    return 0 if all(figure.reached is not False for figure in figures) else 1


SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB", "autovacuum": "on"}


def write(suite: str, figures: list[Figure], version: str) -> None:
    """Replace the part of the page between the two marks of a suite."""
    begin, end = f"<!-- figures {suite} -->", f"<!-- /figures {suite} -->"
    lines = [
        begin,
        f"Taken on {datetime.date.today().isoformat()}, {platform.machine()}, 2 cores, "
        f"Python {platform.python_version()}, PostgreSQL {version}, `fsync=on`.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(figure.row()) + " |" for figure in figures),
        end,
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    PAGE.write_text(before + "\n".join(lines) + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
