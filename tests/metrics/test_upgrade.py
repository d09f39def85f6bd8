"""A log that is older than its numbers: they begin with the upgrade, and miss nothing from then on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import penstock
from penstock.stores import blocks
from tests.support.raw_sql import raw

OLD = 27  # the last migration before numbers were kept


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/log.db"
    else:
        yield request.getfixturevalue("postgres_url")


@pytest.mark.shows("O10", "K29")
def test_numbers_begin_with_the_upgrade(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks.migrations
    with monkeypatch.context() as old:
        old.setattr(blocks, "migrations", lambda *names: found(*names)[:OLD])
        log = penstock.open(empty_url)
        for group in ("g", "idle"):
            log.create_group("orders", group)
        log.append_many("orders", [{"payload": n, "type": "t"} for n in range(9)])
        done, held = (log.claim("orders", "g", limit=3, claimed_by="w") for _ in range(2))
        assert done is not None and held is not None
        done.settle()
        log.close()
    with penstock.open(empty_url) as log:
        log.lease(held.id, held.token).settle()
        later = log.claim("orders", "g", limit=2, claimed_by="w")
        assert later is not None
        later.settle()
        until = datetime.now(UTC) + timedelta(minutes=2)
        for _ in range(2):
            points = log.series("orders", "g", until=until, since=until - timedelta(minutes=10)).points
            assert points[0].published is None, "nobody knows what was pruned before"
            log.record_metrics()
        with raw(empty_url) as sql:
            sql("update penstock.metric_turn set began_at = null")
        points = log.series("orders", "g", until=until, since=until - timedelta(minutes=10)).points
        assert sum(one.published or 0 for one in points) == 5, "what ended before the upgrade is not counted"
