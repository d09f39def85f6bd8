"""The small parts of the engine, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.core import limits
from penstock.core.circuit import next_delay
from penstock.engine.handlers.key_turns import Turns
from penstock.engine.handlers.state import KeyState, LeaseState, as_written
from penstock.engine.pace import Pace
from penstock.log.keyed_state import WithTtl


def test_pace_goes_from_one_event_to_a_full_batch() -> None:
    pace = Pace(batch_seconds=2, batch_size=50_000)
    assert pace.limit == limits.FIRST_LEASE
    pace.ran(64, 0.0001)
    assert pace.limit == 512, "one quick lease is not enough to grow"
    for _ in range(4):
        pace.ran(pace.limit, 0.001)
    assert pace.limit == 50_000
    for _ in range(40):
        pace.ran(1, 30.0)
    assert pace.limit == 1
    pace.ran(0, 1.0)
    assert pace.limit == 1, "an empty lease must not change the pace"


def test_the_delay_of_a_circuit_doubles_up_to_a_minute() -> None:
    delays = [next_delay(0.0)]
    while len(delays) < 8:
        delays.append(next_delay(delays[-1]))
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]


@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=30), st.integers(1, 5), st.randoms())
def test_turns_hand_out_everything_once_and_in_order_per_key(keys: list[str | None], slots: int, dice: object) -> None:
    turns = Turns(range(len(keys)), keys)
    running: list[int] = []
    begun: list[int] = []
    while True:
        while len(running) < slots and (place := turns.take()) is not None:
            assert keys[place] is None or keys[place] not in {keys[other] for other in running}
            running.append(place)
            begun.append(place)
        if not running:
            break
        place = running.pop(dice.randrange(len(running)))  # type: ignore[attr-defined]
        turns.done(place)
    assert sorted(begun) == list(range(len(keys)))
    for key in ("a", "b", "c"):
        mine = [place for place in begun if keys[place] == key]
        assert mine == sorted(mine)


def test_state_behaves_as_a_mapping() -> None:
    known = LeaseState({"k": {"n": 1, "list": [1]}})
    state = KeyState(known.of("k"))
    assert dict(state) == {"n": 1, "list": [1]} and len(state) == 2 and "n" in state and "m" not in state
    state["n"] += 1
    state.set("m", {"a": 1}, ttl_seconds=5)
    del state["list"]
    assert dict(state) == {"n": 2, "m": {"a": 1}}
    with pytest.raises(KeyError):
        del state["list"]
    with pytest.raises(KeyError):
        state["list"]
    assert as_written(state.written) == {"n": 2, "m": WithTtl({"a": 1}, 5), "list": None}
    assert dict(KeyState(known.of("k"))) == {"n": 1, "list": [1]}, "kept before the event succeeded"
    known.keep("k", state.written)
    assert dict(KeyState(known.of("k"))) == {"n": 2, "m": {"a": 1}}
    for bad in ({1, 2}, object(), float("nan"), 2**70, "\ud800", "x" * 2**21, WithTtl(1, 5)):
        with pytest.raises(penstock.InvalidInput):
            state["x"] = bad
    for ttl in (0, -1, "5", True):
        with pytest.raises(penstock.InvalidInput):
            state.set("x", 1, ttl_seconds=ttl)  # type: ignore[arg-type]
    assert "x" not in state, "a refused ttl must not set the value without one"
    for name in ("", 7, None, "x" * 600):
        with pytest.raises(penstock.PenstockError):
            state[name] = 1  # type: ignore[index]


@pytest.mark.shows("K18")
def test_leases_get_smaller_while_many_events_wait_for_failed_keys() -> None:
    """Every waiting event becomes a row, so smaller leases write fewer rows."""
    pace = Pace(batch_seconds=2, batch_size=50_000)
    for _ in range(5):
        pace.ran(40_000, seconds=0.1)
    assert pace.limit == 50_000
    pace.held(5_000, of=40_000)
    assert pace.limit == 20_000
    for _ in range(10):
        pace.held(pace.limit // 10, of=pace.limit)
    assert pace.limit == 1_000, "a claim has a fixed cost, so leases must not shrink without end"
    while pace.limit < 50_000:
        before = pace.limit
        pace.held(0, of=before)
        assert pace.limit > before, "leases must grow again once keys are free"
