"""The same promises, longer: minutes of hostile writers and thousands of random histories."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import penstock
from penstock.log import crash_guard
from penstock.testing import VirtualClock
from tests.conformance.test_model import StoreAgainstModel
from tests.support.hostile_writers import check_nothing_is_lost
from tests.support.logs import MakeLog


@pytest.mark.shows("K09")
def test_sixteen_hostile_writers_lose_none_of_200_000_events(make_log: MakeLog, log_url: str) -> None:
    kept = check_nothing_is_lost(make_log, log_url, writers=16, rounds=1_400, most=24)
    assert kept >= 200_000


@pytest.mark.shows("X01")
def test_store_against_model_at_length(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_guard, "SOLO_DEATHS", 10**6)  # the model has no crash-loop guard

    class Machine(StoreAgainstModel):
        log = clocked

    Machine.clock = clock
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=1_000,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
