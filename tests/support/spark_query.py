"""Streaming queries: a source, a sink that records its batches, and changes to a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until


def read_orders_stream(spark: Any, url: str, **options: Any) -> Any:
    """The group `lake` on `orders` as a streaming DataFrame."""
    given = {"url": url, "stream": "orders", "group": "lake", **{name: str(value) for name, value in options.items()}}
    return spark.readStream.format("penstock").options(**given).load()


@dataclass
class RecordingSink:
    """Records every batch that is written; `before` may raise to refuse one."""

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


def start_query(frame: Any, sink: RecordingSink, checkpoint: Path, **trigger: Any) -> Any:
    """Start a query that writes into the sink."""
    writer = frame.writeStream.foreachBatch(sink.write).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run_query_until_caught_up(frame: Any, sink: RecordingSink, checkpoint: Path) -> None:
    """Run a query over what the log holds now."""
    start_query(frame, sink, checkpoint, availableNow=True).awaitTermination()


def wait_until_query(condition: Callable[[], bool], query: Any, seconds: float = 60) -> None:
    """Wait until the query has made the condition hold; raise the query's error if it failed."""

    def look() -> bool:
        if query.exception() is not None:
            raise query.exception()
        return condition()

    wait_until(look, "the query to make the condition hold", seconds)


# --- checkpoints ------------------------------------------------------------------------------------------------------


def newest_entry(directory: Path) -> Path:
    """The newest numbered file of a checkpoint's log."""
    return max(_entries(directory), key=lambda one: int(one.name))


def forget_newest_commit(checkpoint: Path) -> None:
    """As if the driver had died after the sink's commit and before Spark's own."""
    _remove(newest_entry(checkpoint / "commits"))


def forget_newest_data(checkpoint: Path) -> None:
    """The same for the newest batch with data; drop the empty batches after it."""
    claims = {int(one.name): one.read_text().splitlines()[-1] for one in _entries(checkpoint / "offsets")}
    data = max(number for number, claim in claims.items() if claim != claims.get(number - 1))
    for name, first in (("commits", data), ("offsets", data + 1)):
        for one in _entries(checkpoint / name):
            if int(one.name) >= first:
                _remove(one)


def _entries(directory: Path) -> list[Path]:
    return [one for one in directory.iterdir() if one.name.isdigit()]


def _remove(entry: Path) -> None:
    entry.unlink()
    (entry.parent / f".{entry.name}.crc").unlink(missing_ok=True)


def visits() -> Any:
    """A stateful processor: how often a key was seen, and its latest second. (Defined here, it is pickled by value.)"""
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Visits(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "count long, latest long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timer_values: Any) -> Iterator[Any]:
            count, latest = self.seen.get() if self.seen.exists() else (0, 0)
            for row in rows:
                count, latest = count + 1, max(latest, row.second)
            self.seen.update((count, latest))
            yield Row(key=key[0], count=count, latest=latest)

        def close(self) -> None:
            pass

    return Visits()
