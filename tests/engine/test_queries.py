"""What an app may declare as a streaming query; this needs no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import sinks
from penstock.errors import InvalidQuery

TABLE = sinks.Table("revenue")
UPSERT = sinks.Table("revenue", mode="upsert", keys=["day"])


def same(events: Any) -> Any:
    return events


@pytest.mark.shows("S24")
def test_a_query_is_declared_once_for_its_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app = penstock.App("sqlite:///nowhere.db", name="shop")
    app.query("orders:eu", group="sessions", sink=TABLE)(same)
    app.query("orders", group="kept", sink=UPSERT, output_mode="update", checkpoint="s3a://bucket/c", max_rows=7)(same)
    monkeypatch.chdir(tmp_path)
    first, second = app.queries
    assert (first.name, first.function, first.output_mode) == ("orders:eu/sessions", same, "append")
    assert first.place == str(tmp_path / "checkpoints" / "shop" / "orders=eu" / "sessions")
    monkeypatch.setenv("PENSTOCK_HOME", "/var/lib/penstock")
    assert first.place == "/var/lib/penstock/checkpoints/shop/orders=eu/sessions"
    assert (second.place, second.max_rows) == ("s3a://bucket/c", 7)
    assert app.chosen_queries(["kept"]) == [second] and app.groups == {"sessions", "kept"}
    for declare in (app.query, app.pipeline):
        with pytest.raises(penstock.PolicyConflict, match="already has a query"):
            declare("orders", group="kept", sink=TABLE)(same)
    with pytest.raises(penstock.PolicyConflict, match="already has a query"):
        app.subscribe("orders", group="kept")(same)
    with pytest.raises(penstock.InvalidInput, match="need the Spark engine: sessions, kept"):
        app.run("local")


@pytest.mark.shows("S24")
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sink": sinks.Parquet("/tmp/x")}, "Table or .Stream"),
        ({"sink": sinks.ForeachBatch(lambda rows, batch: None)}, "Table or .Stream"),
        ({"sink": "revenue"}, "Table or .Stream"),
        ({"output_mode": "update"}, "cannot take the output mode 'update', only append"),
        ({"output_mode": "complete"}, "cannot take"),
        ({"sink": sinks.Stream("totals"), "output_mode": "complete"}, "only append and update"),
        ({"output_mode": "all"}, "one of append, update, complete"),
        ({"checkpoint": ""}, "checkpoint is a folder"),
        ({"max_rows": 0}, "max_rows"),
        ({"trigger_seconds": -1}, "trigger_seconds"),
        ({"retry": 3}, "retry takes"),
        ({"types": ["a..b"]}, "a..b"),
    ],
)
def test_what_a_sink_cannot_take_is_refused_when_it_is_declared(options: dict[str, Any], match: str) -> None:
    with pytest.raises(penstock.InvalidInput, match=match):
        penstock.App().query("orders", group="g", **{"sink": TABLE} | options)(same)


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b: a, 7])
def test_a_function_that_does_not_take_a_dataframe_is_refused(function: Any) -> None:
    with pytest.raises(InvalidQuery):
        penstock.App().query("orders", group="g", sink=TABLE)(function)
