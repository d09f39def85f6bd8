"""What `penstock run` says on standard error where nobody watches: one line for each event of its life."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli import output
from penstock.core.observe import Observed, ProcessesDied, RunBegan, RunEnded, RunStopping, everyone

STOPPING = "stopping: running handlers get their time; a second signal exits at once"
logger = logging.getLogger("penstock")


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
            case RunStopping():
                self.say("stopping", STOPPING)
            case RunEnded(outcome=outcome):
                self.say("ended", f"the run ended: {outcome}", outcome=outcome)
            case ProcessesDied(group=group, count=count):
                self.say(
                    "processes_died", f"{group}: {count:,} of its handlers' processes died", group=group, count=count
                )
            case _:
                pass

    def say(self, event: str, words: str, **fields: object) -> None:
        """One line."""
        if self._json_lines:
            output.write_line({"level": "info", "event": event, "message": words, **fields})
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
            output.write_line({"level": record.levelname.lower(), "event": "warning", "message": record.getMessage()})
        else:
            print(output.plain(record.getMessage()), file=sys.stderr, flush=True)


@contextmanager
def warnings_shown(json_lines: bool) -> Iterator[None]:
    """Print warnings, unless the app configures logging: then it has said where they go."""
    handler = _Warnings(json_lines)
    handler.addFilter(lambda record: logger.handlers == [handler] and not logging.getLogger().handlers)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
