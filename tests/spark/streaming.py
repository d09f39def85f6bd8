"""What the tests of streaming queries share: a source, a sink that remembers, and ways to wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock
from tests.support.postgres_server import wait_for


def events(spark: Any, url: str, **options: Any) -> Any:
    """The group `lake` on `orders` as a streaming DataFrame."""
    given = {"url": url, "stream": "orders", "group": "lake", **{name: str(value) for name, value in options.items()}}
    return spark.readStream.format("penstock").options(**given).load()


def fill(log: penstock.Log, first: int, count: int) -> None:
    """Orders with numbers that say which is which."""
    log.append_many("orders", [{"payload": {"n": n}, "type": "order.created"} for n in range(first, first + count)])


@dataclass
class Seen:
    """A sink that remembers every batch that was written, and fails when it is told to."""

    batches: list[tuple[int, list[int]]] = field(default_factory=list)
    before: Callable[[int], None] = lambda _: None

    def write(self, batch: Any, number: int) -> None:
        rows = sorted(
            row.n for row in batch.selectExpr("cast(get_json_object(string(payload), '$.n') as int) as n").collect()
        )
        self.before(number)
        self.batches.append((number, rows))

    @property
    def numbers(self) -> list[int]:
        return sorted(n for _, rows in self.batches for n in rows)


def start(frame: Any, seen: Seen, checkpoint: Path, **trigger: Any) -> Any:
    """A running query into the sink."""
    writer = frame.writeStream.foreachBatch(seen.write).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def drain(frame: Any, seen: Seen, checkpoint: Path) -> None:
    """Run a query over what is there."""
    start(frame, seen, checkpoint, availableNow=True).awaitTermination()


def newest(directory: Path) -> Path:
    """The newest numbered file of a checkpoint's log."""
    return max(_numbered(directory), key=lambda one: int(one.name))


def _numbered(directory: Path) -> list[Path]:
    return [one for one in directory.iterdir() if one.name.isdigit()]


def forget_commit(checkpoint: Path) -> None:
    """As if the driver had died after the sink's commit and before Spark's own."""
    last = newest(checkpoint / "commits")
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def forget_data(checkpoint: Path) -> None:
    """The same for the newest batch that had data, as if none without had followed it."""
    claims = {int(one.name): one.read_text().splitlines()[-1] for one in _numbered(checkpoint / "offsets")}
    data = max(number for number, claim in claims.items() if claim != claims.get(number - 1))
    for name, first in (("commits", data), ("offsets", data + 1)):
        for one in _numbered(checkpoint / name):
            if int(one.name) >= first:
                one.unlink()
                (one.parent / f".{one.name}.crc").unlink(missing_ok=True)


def until(true: Callable[[], bool], query: Any | None = None, seconds: float = 60) -> None:
    """Wait for a condition, or for the query that should bring it about to fail."""

    def look() -> bool:
        if query is not None and query.exception() is not None:
            raise query.exception()
        return true()

    wait_for(look, "the query to bring it about", seconds)
