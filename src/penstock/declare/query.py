"""`Query`: a function from a streaming DataFrame to another one, its group, its sink and its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from penstock.core import limits
from penstock.core.binding import check_patterns
from penstock.core.event import check_name
from penstock.core.group import Group
from penstock.core.retry import Retry
from penstock.declare.pipeline import Sink, check_function
from penstock.declare.subscription import Function
from penstock.errors import InvalidInput, InvalidPipeline, InvalidQuery
from penstock.log.log import Log

OUTPUT_MODES: Final = ("append", "update", "complete")
_MOST_ROWS: Final = 2**31 - 1
_MOST_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query over a group."""

    stream: str
    group: str
    function: Function
    sink: Sink
    app: str = "app"
    output_mode: str = "append"
    checkpoint: str | None = None  # None: see `default_checkpoint`
    types: tuple[str, ...] | None = None
    start: str | int | datetime = "beginning"
    retry: Retry = field(default_factory=Retry)
    headers: Mapping[str, str] | None = None
    max_rows: int = limits.PIPELINE_BATCH
    trigger_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_name(self.stream, "stream")
        check_name(self.group, "group")
        check_patterns(self.types)
        try:
            check_function(self.function)
        except InvalidPipeline as error:
            raise InvalidQuery(error.message) from error
        self._check_sink()
        if not isinstance(self.retry, Retry):
            raise InvalidInput(f"retry takes a penstock.Retry, not {self.retry!r}.")
        self.retry.storable()
        if self.checkpoint is not None and (not isinstance(self.checkpoint, str) or not self.checkpoint):
            raise InvalidQuery("checkpoint is a folder, or a URL that Spark's Hadoop knows.")
        rows, seconds = self.max_rows, self.trigger_seconds
        if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= _MOST_ROWS:
            raise InvalidInput(f"max_rows must be a whole number between 1 and {_MOST_ROWS:,}.")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _MOST_SECONDS:
            raise InvalidInput(f"trigger_seconds must be a number between 0 and {_MOST_SECONDS:,g}.")

    def _check_sink(self) -> None:
        if not isinstance(self.sink, Sink) or not self.sink.output_modes:
            raise InvalidQuery(f"The sink of a query is penstock.sinks.Table or .Stream, not {self.sink!r}.")
        if self.output_mode not in OUTPUT_MODES:
            raise InvalidQuery(f"output_mode is one of {', '.join(OUTPUT_MODES)}, not {self.output_mode!r}.")
        if self.output_mode not in self.sink.output_modes:
            raise InvalidQuery(
                f"{self.sink!r} cannot take the output mode {self.output_mode!r}, only "
                f"{' and '.join(self.sink.output_modes)}."
            )

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.group}"

    @property
    def place(self) -> str:
        """The folder of its checkpoint."""
        if self.checkpoint is None:
            return default_checkpoint(self.app, self.stream, self.group)
        return self.checkpoint if "://" in self.checkpoint else str(Path(self.checkpoint).absolute())


def default_checkpoint(app: str, stream: str, group: str) -> str:
    """Return the folder of a query's checkpoint: below $PENSTOCK_HOME, else below the working directory."""
    home = Path(os.environ.get("PENSTOCK_HOME") or ".").absolute()
    names = [name.replace(":", "=") for name in (app, stream, group)]  # Hadoop's paths have no colons
    return str(home.joinpath("checkpoints", *names))


def declare_query(log: Log, query: Query, by: str) -> Group:
    """Create the group or update its policy; a different binding raises."""
    return log.declare_group(
        query.stream,
        query.group,
        start=query.start,
        retry=query.retry,
        types=query.types,
        headers=query.headers,
        by=by,
    )
