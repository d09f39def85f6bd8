"""What an app may declare as a pipeline; this needs no Spark."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock import sinks
from penstock.declare.pipeline import Pipeline
from penstock.errors import InvalidPipeline

TABLE = sinks.Table("revenue")


def test_a_pipeline_is_declared_once_for_its_group() -> None:
    app = penstock.App("sqlite:///nowhere.db")

    @app.pipeline("orders", group="revenue", sink=TABLE, types=["order.*"], batch_size=500)
    def revenue(batch: Any) -> Any:
        return batch

    (one,) = app.pipelines
    assert (one.name, one.function, one.sink, one.types, one.batch_size) == (
        *("orders/revenue", revenue, TABLE),
        *(("order.*",), 500),
    )
    with pytest.raises(penstock.PolicyConflict, match="one pipeline"):
        app.pipeline("orders", group="revenue", sink=TABLE)(revenue)
    with pytest.raises(penstock.PolicyConflict, match="one pipeline"):
        app.subscribe("orders", group="revenue")(lambda event: None)
    app.subscribe("orders", group="fraud")(lambda event: None)
    with pytest.raises(penstock.PolicyConflict, match="already has a handler"):
        app.pipeline("orders", group="fraud", sink=TABLE)(revenue)


@pytest.mark.shows("S23")
def test_two_batches_are_in_flight_unless_the_sink_needs_their_order() -> None:
    app = penstock.App()
    upsert = sinks.Table("revenue", mode="upsert", keys=["day"])
    for group, sink, many in (("a", TABLE, None), ("b", upsert, None), ("c", TABLE, 5), ("d", upsert, 1)):
        app.pipeline("orders", group=group, sink=sink, in_flight=many)(lambda batch: batch)
    assert [one.batches_in_flight() for one in app.pipelines] == [2, 1, 5, 1]


async def later(batch: Any) -> Any:
    return batch


def yielding(batch: Any) -> Any:
    yield batch


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b: a, lambda *, batch: batch, later, yielding, 7])
def test_a_function_that_does_not_take_a_dataframe_is_refused(function: Any) -> None:
    with pytest.raises(InvalidPipeline):
        penstock.App().pipeline("orders", group="g", sink=TABLE)(function)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sink": "revenue"}, InvalidPipeline),
        ({"sink": sinks.Table}, InvalidPipeline),
        ({"batch_size": 0}, penstock.InvalidInput),
        ({"batch_size": 200_001}, penstock.InvalidInput),
        ({"in_flight": 0}, penstock.InvalidInput),
        ({"in_flight": 2.0}, penstock.InvalidInput),
        ({"in_flight": 2, "sink": sinks.Table("revenue", mode="upsert", keys=["day"])}, InvalidPipeline),
        ({"in_flight": 2, "sink": sinks.ForeachBatch(lambda rows, batch_id: None)}, InvalidPipeline),
        ({"linger_seconds": -1}, penstock.InvalidInput),
        ({"linger_seconds": "1"}, penstock.InvalidInput),
        ({"timeout_seconds": 0}, penstock.InvalidInput),
        ({"timeout_seconds": True}, penstock.InvalidInput),
        ({"lease_seconds": 0}, penstock.InvalidInput),
        ({"retry": 3}, penstock.InvalidInput),
        ({"types": ["a..b"]}, penstock.InvalidInput),
        ({"group": "no spaces"}, penstock.InvalidName),
    ],
)
def test_odd_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        penstock.App().pipeline("orders", **{"group": "g", "sink": TABLE, **options})(lambda batch: batch)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sinks.Table('revenue"; drop'),
        lambda: sinks.Table("a.b.c"),
        lambda: sinks.Table("revenue", mode="replace"),
        lambda: sinks.Table("revenue", mode="upsert"),
        lambda: sinks.Table("revenue", keys=["day"]),
        lambda: sinks.Table("revenue", mode="upsert", keys="day"),
        lambda: sinks.Table("revenue", mode="merge", keys=["day"]),
        lambda: sinks.Table("revenue", mode="merge", keys=["day"], add=["day"]),
        lambda: sinks.Table("revenue", mode="merge", keys=["day"], add=["total", "total"]),
        lambda: sinks.Table("revenue", mode="merge", keys=["day"], add=["total"], version="at"),
        lambda: sinks.Table("revenue", mode="upsert", keys=["day"], add=["total"]),
        lambda: sinks.Table("revenue", mode="upsert", keys=["day"], version=""),
        lambda: sinks.Table("revenue", version="at"),
        lambda: sinks.Stream("no spaces"),
        lambda: sinks.Stream("totals", type="no spaces"),
        lambda: sinks.Stream("totals", key=""),
        lambda: sinks.Parquet(""),
        lambda: sinks.Parquet("s3://key:secret@lake/orders"),
        lambda: sinks.Parquet("lake", compression="zip"),
        lambda: sinks.ForeachBatch(lambda batch: None),
        lambda: sinks.ForeachBatch(later),
    ],
)
def test_odd_sinks_are_refused(make: Any) -> None:
    with pytest.raises(penstock.InvalidInput):
        make()


def test_declaring_needs_no_spark() -> None:
    import subprocess
    import sys

    code = (
        "import sys, penstock; app = penstock.App(); "
        "app.pipeline('orders', group='g', sink=penstock.sinks.Table('t'))(lambda batch: batch); "
        "sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_columns_that_are_replaced_without_a_version_need_their_batches_one_by_one() -> None:
    keys = ["day"]
    assert sinks.Table("revenue", mode="upsert", keys=keys).one_at_a_time()
    merge = sinks.Table("revenue", mode="merge", keys=keys, add=["total"])
    assert merge.one_at_a_time(["day", "total", "last"])
    both = Pipeline("orders", "g", lambda batch: batch, merge, in_flight=2)
    assert both.batches_in_flight(["day", "total"]) == 2
    with pytest.raises(InvalidPipeline, match="one batch at a time"):
        both.batches_in_flight(["day", "total", "last"])
    assert not any(
        one.one_at_a_time(["day", "total"])
        for one in (
            *(TABLE, sinks.Table("revenue", mode="upsert", keys=keys, version="at"), sinks.Stream("totals")),
            *(merge, sinks.Parquet("lake")),
        )
    )
