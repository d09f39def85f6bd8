"""Publishers run in tasks of Spark, found through their app: what they hold is not sent along."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.declare.portable import portable
from tests.support.children import relay_app
from tests.support.log_steps import append_orders, count_by_state
from tests.support.notes import read_notes
from tests.support.spark_engine import run_on_spark_until_drained


@pytest.mark.shows("R06")
def test_a_publisher_runs_in_a_task(spark: Any, postgres_log: penstock.Log, notes: Path) -> None:
    ids = append_orders(postgres_log, 500)
    run_on_spark_until_drained(spark, postgres_log, relay_app.RELAYED)
    assert count_by_state(postgres_log) == {"published": 500}
    sent = [line for line in read_notes(notes) if line[1] != "closed"]
    assert sorted(line[1] for line in sent) == sorted(map(str, ids))
    assert {line[2] for line in sent} == {"order.created"} and str(os.getpid()) not in {line[0] for line in sent}


def test_what_travels_holds_no_password_and_finds_the_same_publisher() -> None:
    subscription = relay_app.RELAYED
    sent = pickle.dumps(portable(subscription))
    assert relay_app.PASSWORD.encode() not in sent
    found = pickle.loads(sent).load()
    assert found.handlers[0].function is subscription.handlers[0].function and found.policy == subscription.policy


def test_a_publisher_of_an_app_without_a_name_is_refused_before_anything_starts() -> None:
    app = penstock.App(name="hidden")
    app.publish("orders", group="g", publisher=penstock.connect.JsonLines("-"))
    with pytest.raises(penstock.HandlerUnreachable, match="give it a name"):
        portable(app.subscriptions[0])
