"""The same promises, longer: minutes of hostile writers and thousands of random histories."""

from __future__ import annotations

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.hostile_writers import check_nothing_is_lost
from tests.support.logs import MakeLog
from tests.support.store_against_model import check_store_against_model


@pytest.mark.shows("K09")
def test_sixteen_hostile_writers_lose_none_of_200_000_events(make_log: MakeLog, log_url: str) -> None:
    kept = check_nothing_is_lost(make_log, log_url, writers=16, rounds=1_400, most=24)
    assert kept >= 200_000


@pytest.mark.shows("X01")
def test_a_store_behaves_as_the_model_at_length(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_store_against_model(clocked, clock, monkeypatch, examples=1_000, steps=40)
