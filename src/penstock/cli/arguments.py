"""Arguments and options that several commands share, and how their texts are read."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.completion import groups, streams
from penstock.cli.times import TIME_HELP, parse_offset
from penstock.core.event import parse_event_id
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.telemetry.settings import Telemetry

MOST = 100_000  # rows in one answer
LARGEST = 2**63 - 1
_LONGEST_OFFSET = 19  # digits; anything longer is an id

Stream = Annotated[
    str, typer.Argument(metavar="STREAM", help="The stream.", show_default=False, autocompletion=streams)
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False, autocompletion=groups)]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="ID|OFFSET", help="An event; repeat it for more.", show_default=False),
]
Type = Annotated[str | None, typer.Option("--type", help="Only events of this type.")]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"Created at or after: {TIME_HELP}.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Created before.")]
Error = Annotated[str | None, typer.Option("--error", help="Only with this error code, or this text in the error.")]
Kind = Annotated[
    str | None, typer.Option("--fingerprint", metavar="F", help="Only this kind of error; `none`: those without one.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=MOST, help="How many at most.")]
After = Annotated[
    int, typer.Option("--after", metavar="OFFSET", min=0, max=LARGEST, help="Only above this offset: the next page.")
]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="K=V", help="A header; repeat it for more.", show_default=False)
]
Types = Annotated[
    list[str] | None,
    typer.Option("--types", metavar="PATTERN", help="A type pattern such as order.* or order.>; repeat it for more."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who does this, for the audit; else the user's name.")
]

Traces = Annotated[bool, typer.Option("--traces", help="Send traces, as the variables OTEL_* say.", show_default=False)]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", metavar="N", min=0, max=65535, help="Serve metrics for Prometheus; 0: any port."),
]
MetricsHost = Annotated[
    str | None,
    typer.Option("--metrics-host", metavar="ADDRESS", help="Where to serve them; else on a loopback address."),
]


def telemetry(known: Telemetry, traces: bool, port: int | None, host: str | None) -> Telemetry:
    """What an app says of its telemetry, with what the command says on top."""
    changed = replace(known, traces=traces or known.traces)
    changed = changed if port is None else replace(changed, metrics_port=port)
    if host is not None and changed.metrics_port is None:
        raise InvalidInput("--metrics-host needs --metrics-port.")
    return changed if host is None else replace(changed, metrics_host=host)


def parse_headers(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """`k=v` pairs as a mapping."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"header {pair!r} is not of the form name=value.")
        found[name] = value
    return found or None


def parse_event(text: str) -> uuid.UUID | int:
    """An event by its id, or by its offset."""
    by_offset = text.isdecimal() and len(text) <= _LONGEST_OFFSET
    return parse_offset(text, "offset") if by_offset else parse_event_id(text)


def parse_types(patterns: Sequence[str] | None) -> list[str] | None:
    """Patterns, given one by one or with commas between them."""
    return [one.strip() for given in patterns for one in given.split(",")] if patterns else None
