"""`penstock bench`: a short measurement on your own database, in a scratch log that is removed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import output
from penstock.cli.command import START, command, root
from penstock.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.log import Log

_BATCH: Final = 1_000
_CLAIM: Final = 500
_STREAM, _ALONE, _GROUP = "bench", "bench.one", "bench"


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured: events a second, and milliseconds of one call."""

    what: str
    calls: int
    events_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @classmethod
    def of(cls, what: str, seconds: list[float], events: int) -> Figure:
        ordered = sorted(seconds)
        p50, p95, p99 = (round(ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1000, 3) for part in _PARTS)
        return cls(what, len(ordered), round(events / sum(ordered), 1), p50, p95, p99)


_PARTS: Final = (0.5, 0.95, 0.99)


@command(root, "bench", panel=START, example="penstock bench --seconds 10 --url postgresql://me@db/shop")
def bench(
    session: Session,
    *,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", min=0.1, max=600, help="How long it measures, over all.")
    ] = 8.0,
    payload_bytes: Annotated[
        int, typer.Option("--payload-bytes", metavar="N", min=2, max=1_000_000, help="The size of a payload.")
    ] = 200,
) -> None:
    """Measure appends, claims and settles on the database in --url, one connection at a time.

    It works in a scratch schema (for SQLite, in a temporary file beside the log) and removes it, also after Ctrl-C.
    """
    from penstock.log.open import open_log
    from penstock.testing.clauses.scratch import scratch_log

    with scratch_log(session.url, same_disk=True) as url, open_log(url) as log:
        warnings = [one.what for one in log.examine() if one.check == "durability" and one.level != "ok"]
        figures = _measured(session, log, seconds, payload_bytes)
    document = {
        "url": session.safe_url,
        "payload_bytes": payload_bytes,
        "figures": [asdict(one) for one in figures],
        "warnings": warnings,
    }
    session.answer(document, lambda: _shown(figures, warnings))


def _measured(session: Session, log: Log, seconds: float, payload_bytes: int) -> list[Figure]:
    from rich.progress import Progress

    rounds = [*_rounds(log, "x" * (payload_bytes - 2))]
    with Progress(console=output.error_console(), transient=True, disable=not session.progress_wanted()) as progress:
        shown = progress.track(rounds, description="measuring")
        return [Figure.of(what, *_repeat(do, seconds / len(rounds))) for what, do in shown]


def _rounds(log: Log, text: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """What is measured; each returns how many events it was about."""
    for stream in (_STREAM, _ALONE):
        log.create_group(stream, _GROUP)
    event = {"payload": text, "type": "bench"}
    batch: list[dict[str, Any]] = [{**event, "ordering_key": f"k{n % 100}"} for n in range(_BATCH)]

    def append_one(stream: str = _STREAM) -> int:
        log.append(stream, text, type="bench")
        return 1

    def append_many() -> int:
        log.append_many(_STREAM, batch)
        return _BATCH

    def settle(most: int, stream: str = _STREAM) -> int:
        lease = log.claim(stream, _GROUP, limit=most, claimed_by="bench")
        if lease is None:
            return 0
        count = len(lease.events)
        lease.settle()
        return count

    def deliver() -> int:
        """From an append to the end of its delivery."""
        append_one(_ALONE)
        return settle(1, _ALONE)

    yield "append one", append_one
    yield f"append {_BATCH:,} at once", append_many
    yield f"claim and settle up to {_CLAIM}", lambda: settle(_CLAIM)
    yield "append, claim and settle one", deliver


def _repeat(do: Callable[[], int], seconds: float) -> tuple[list[float], int]:
    """How long each call took, and how many events they were about; calls that found nothing end it."""
    took: list[float] = []
    events = 0
    until = time.monotonic() + seconds
    while not took or time.monotonic() < until:
        began = time.perf_counter()
        count = do()
        if count == 0 and took:
            break
        took.append(time.perf_counter() - began)
        events += count
    return took, events


def _shown(figures: list[Figure], warnings: list[str]) -> RenderableType:
    rows = [
        (one.what, f"{one.events_per_second:,.0f}", *(f"{ms:,.1f}" for ms in (one.p50_ms, one.p95_ms, one.p99_ms)))
        for one in figures
    ]
    notes = [output.styled(f"Note: {one}", "yellow") for one in warnings]
    return output.stacked(output.table(("measured…", ">events/s", ">p50 ms", ">p95 ms", ">p99 ms?"), rows), *notes)
