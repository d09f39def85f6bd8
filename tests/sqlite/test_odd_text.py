"""SQLite stores any bytes as text: invalid UTF-8 is shown as well as possible and blocks nothing."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import penstock
from tests.support.children import handlers
from tests.support.declarations import subscription
from tests.support.local_engine import run_local_until_drained
from tests.support.log_steps import claim_and_settle_all
from tests.support.raw_sql import raw


@pytest.mark.shows("K39")
def test_a_key_that_is_not_utf8_stops_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    penstock.open(url).close()
    with raw(url) as sql:
        for column in ("ordering_key", "partition_key"):
            bucket = "7" if column == "ordering_key" else "null"
            sql(
                f"insert into penstock.events (stream, event_id, event_type, payload, {column}, bucket) "
                f"values ('orders', '{uuid.uuid4()}', 't', x'7b7d', cast(x'ff41' as text), {bucket})"
            )
    with penstock.open(url) as log:
        assert [event.ordering_key for event in log.read("orders")] == ["\ufffdA", None]
        log.create_group("orders", "g", ordering="key")
        assert len(claim_and_settle_all(log)) == 2
        log.create_group("orders", "failing", ordering="key")
        lease = log.claim("orders", "failing", claimed_by="w")
        assert lease is not None
        lease.settle(failed={event.event_id: "no" for event in lease.events})
    with penstock.open(url) as log:
        assert {str(one.state) for one in log.deliveries("orders", "g")} == {"PUBLISHED"}
        assert len(log.deliveries("orders", "failing")) == 2 and log.stats().groups
        engine = run_local_until_drained(log, subscription(handlers.plain, group="third", isolation="inline"))
        assert engine.snapshot()["orders/third"]["published"] == 2
