"""Observers hear what was committed, and one that fails hurts nobody."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.core.observe import Observed, Observers, Operated, RunStopping, everyone


@pytest.fixture
def heard() -> Iterator[list[Observed]]:
    found: list[Observed] = []
    unsubscribe = everyone.subscribe(found.append)
    yield found
    unsubscribe()


def test_an_action_is_observed_once_it_is_committed(heard: list[Observed], tmp_path: Path) -> None:
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.append("orders", {}, type="t")
        log.create_group("orders", "fraud")
        lease = log.claim("orders", "fraud", claimed_by="w")
        assert lease is not None
        lease.settle(dead={lease.events[0]: "no"})
        assert log.redrive("orders", "fraud", all=True, dry_run=True, by="me").count == 1
        assert heard == [], "nothing was changed yet"
        log.redrive("orders", "fraud", all=True, by="me")
        log.pause("orders", "fraud", by="me")
        with pytest.raises(penstock.UnknownGroup):
            log.pause("orders", "mail", by="me")
    assert heard == [
        Operated("redrive", "orders", "fraud", 1, "me"),
        Operated("pause", "orders", "fraud", None, "me"),
    ]


def test_an_observer_that_fails_is_logged_and_hurts_nobody(
    heard: list[Observed], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Observed) -> None:
        raise KeyError("metric")

    with caplog.at_level(logging.ERROR, "penstock"):
        Observers(broken, parent=everyone).emit(RunStopping())
    assert heard == [RunStopping()]
    assert "an observer failed on RunStopping" in caplog.text and "metric" in caplog.text


def test_whoever_unsubscribes_hears_nothing_more() -> None:
    found: list[Observed] = []
    observers = Observers()
    unsubscribe = observers.subscribe(found.append)
    observers.emit(RunStopping())
    unsubscribe()
    observers.emit(RunStopping())
    assert found == [RunStopping()]
