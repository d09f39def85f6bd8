"""`penstock bench`: figures of a log's own database, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

import penstock as library
from tests.cli.conftest import Command

MEASURED = ["append one", "append 1,000 at once", "claim and settle up to 500", "append, claim and settle one"]


@pytest.mark.shows("O01")
@pytest.mark.empty_place
def test_figures_on_either_store(penstock: Command, log_url: str, tmp_path: Path) -> None:
    told = penstock("bench", "--seconds", "0.2", "--payload-bytes", 50).json
    assert [one["what"] for one in told["figures"]] == MEASURED and told["payload_bytes"] == 50
    for one in told["figures"]:
        assert one["calls"] > 0 and one["events_per_second"] > 0 and 0 < one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"]
    if log_url.startswith("sqlite"):
        assert told["warnings"] == [] and list(tmp_path.iterdir()) == []
    else:
        assert any("fsync is off" in one for one in told["warnings"]), "the server of the tests is like that"
        with psycopg.connect(log_url) as connection:
            left = connection.execute("select nspname from pg_namespace where nspname like 'penstock%'").fetchall()
        assert left == []


def test_figures_on_a_narrow_terminal(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log itself is not touched."""
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with library.open(url) as log:
        log.append("orders", {}, type="t")
    monkeypatch.setenv("COLUMNS", "60")
    shown = command("bench", "--seconds", "0.2", "--url", url)
    assert shown.code == 0 and max(map(len, shown.out.splitlines())) <= 60 and "append one" in shown.out
    with library.open(url) as log:
        assert log.streams() == ["orders"]
