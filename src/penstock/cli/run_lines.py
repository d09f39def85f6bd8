"""What `penstock run` says on standard error where nobody watches: one line for each event of its life."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.cli import output
from penstock.core.log_fields import about
from penstock.core.observe import MetricsServed, Observed, ProcessesDied, RunBegan, RunEnded, RunStopping, everyone
from penstock.core.urls import without_secrets
from penstock.telemetry import logs

STOPPING = "stopping: running handlers get their time; a second signal exits at once"
logger = logging.getLogger("penstock")


def write_line(document: dict[str, Any]) -> None:
    """One object in a line of standard error."""
    print(logs.as_line(document), file=sys.stderr, flush=True)


class RunLines:
    """An observer that prints a line of text, or an object of JSON, for each event of a run's life.

    A database that is away and back, and leases that are lost, are warnings: `warnings_shown` prints those.
    """

    def __init__(self, json_lines: bool) -> None:
        self._json_lines = json_lines

    def __call__(self, event: Observed) -> None:
        match event:
            case RunBegan(engine=engine, groups=groups, run=run):
                number = "a run" if run is None else f"run {run}"
                words = f"{number} began on the {engine} engine: {', '.join(groups)}"
                self.say("began", words, run=run, engine=engine, groups=[*groups])
            case MetricsServed(url=url):
                self.say("metrics", f"metrics are served at {url}", url=url)
            case RunStopping():
                self.say("stopping", STOPPING)
            case RunEnded(outcome=outcome):
                self.say("ended", f"the run ended: {outcome}", outcome=outcome)
            case ProcessesDied(group=name, count=count):
                words = f"{name}: {count:,} of its handlers' processes died"
                self.say(**about("processes_died", name, words=words, count=count)["penstock"])
            case _:
                pass

    def say(self, event: str, words: str, **fields: object) -> None:
        """One line."""
        if self._json_lines:
            write_line(logs.document("info", event, words, **fields))
        else:
            print(output.plain(words), file=sys.stderr, flush=True)


@contextmanager
def life_shown(engine: str, json_lines: bool) -> Iterator[None]:
    """Print the lines of a run of this engine."""
    lines = RunLines(json_lines)
    if engine == "spark":
        lines.say("starting", "Spark is starting")
    unsubscribe = everyone.subscribe(lines)
    try:
        yield
    finally:
        unsubscribe()


class _Warnings(logging.Handler):
    """One line on standard error for each record, above whatever is shown there."""

    def __init__(self, json_lines: bool) -> None:
        super().__init__(logging.WARNING)
        self._json_lines = json_lines

    def emit(self, record: logging.LogRecord) -> None:
        if self._json_lines:
            write_line(logs.document_of(record))
        else:
            print(output.plain(without_secrets(record.getMessage())), file=sys.stderr, flush=True)


@contextmanager
def warnings_shown(json_lines: bool, *others: str) -> Iterator[None]:
    """Print warnings of ours and of these other loggers, unless the app configures logging: then it has said where."""
    handler = _Warnings(json_lines)
    handler.addFilter(lambda record: logger.handlers == [handler] and not logging.getLogger().handlers)
    loggers = [logger, *map(logging.getLogger, others)]
    for one in loggers:
        one.addHandler(handler)
    try:
        yield
    finally:
        for one in loggers:
            one.removeHandler(handler)
