"""Batch handlers: one call for many events, an outcome for each, and exceptions narrowed down to their events."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.declare.subscription import Policy
from penstock.engine.pace import Pace
from penstock.testing import Harness, run_handler
from tests.support.children import batch_handlers as handlers
from tests.support.declarations import RETRY_AT_ONCE, subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.local_engine import run_local_until_drained
from tests.support.notes import read_notes
from tests.support.raw_sql import raw

pytestmark = pytest.mark.shows("J20")

ISOLATIONS = ["process", "inline"]


def append_acts(log: penstock.Log, acts: list[str | None], keys: int | None = None) -> None:
    log.append_many(
        "orders",
        [
            {"payload": {"n": n, "do": do}, "type": "t", "ordering_key": None if keys is None else f"k{n % keys}"}
            for n, do in enumerate(acts, start=1)
        ],
    )


def calls(notes: Path) -> list[list[tuple[int, int]]]:
    """Every call, as (offset, attempt) of its events."""
    return [[(int(one.split(":")[0]), int(one.split(":")[1])) for one in line] for line in read_notes(notes)]


def outcomes(log: penstock.Log) -> dict[int, tuple[str, int, str | None]]:
    """State, failures and error code by number."""
    return {
        one.json()["n"]: (str(one.state), one.failures, one.error_code)
        for one in log.deliveries("orders", "g", limit=10_000)
    }


def every_call_is_an_attempt_of_its_own(notes: Path) -> None:
    seen = Counter(one for call in calls(notes) for one in call)
    assert set(seen.values()) <= {1}, seen.most_common(3)


@pytest.mark.parametrize("handler", [handlers.plain, handlers.coroutine], ids=["plain", "async"])
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_batch_handler_gets_many_events_in_one_call(
    log: penstock.Log, notes: Path, isolation: str, handler: Any
) -> None:
    append_acts(log, [None] * 1000)
    run_local_until_drained(log, subscription(handler, batch=100, isolation=isolation))
    sizes = [len(call) for call in calls(notes)]
    assert sum(sizes) == 1000 and max(sizes) == 100 and len(sizes) <= 20
    assert {state for state, _, _ in outcomes(log).values()} == {"PUBLISHED"}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_batch_handler_returns_an_outcome_for_each_event(log: penstock.Log, notes: Path, isolation: str) -> None:
    append_acts(log, [None, "text", "error", "dead", "later", "fine", None])
    run_local_until_drained(log, subscription(handlers.plain, batch=50, isolation=isolation))
    assert outcomes(log) == {
        1: ("PUBLISHED", 0, None),
        2: ("DEAD", 2, "error"),
        3: ("DEAD", 2, "ValueError"),
        4: ("DEAD", 1, "Permanent"),
        5: ("DEAD", 2, "RetryLater"),
        6: ("PUBLISHED", 0, None),
        7: ("PUBLISHED", 0, None),
    }
    assert [len(call) for call in calls(notes)] == [7, 3]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_effects_belong_to_their_event(log: penstock.Log, isolation: str) -> None:
    create_done_table(log.store.url)
    append_acts(log, [None, "error", None, "dead", "fine"], keys=5)
    run_local_until_drained(log, subscription(handlers.with_effects, batch=50, isolation=isolation))
    assert sorted(done_offsets(log.store.url)) == [1, 3, 5]
    assert sorted(event.json()["n"] for event in log.read("out")) == [1, 3, 5]
    assert [log.state("orders", "g", f"k{n % 5}") for n in (1, 2, 3)] == [{"seen": [1]}, {}, {"seen": [3]}]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.shows("K46")
def test_an_exception_is_narrowed_down_to_the_events_that_cause_it(
    log: penstock.Log, notes: Path, isolation: str
) -> None:
    acts: list[str | None] = [None] * 300
    acts[7], acts[150], acts[151], acts[299] = "raise", "permanent", "raise_once", "raise"
    append_acts(log, acts)
    run_local_until_drained(log, subscription(handlers.plain, batch=100, isolation=isolation))
    found = outcomes(log)
    assert {n: found.pop(n) for n in (8, 151, 152, 300)} == {
        8: ("DEAD", 2, "ValueError"),
        151: ("DEAD", 1, "Permanent"),
        152: ("PUBLISHED", 1, found_code(log, 152)),
        300: ("DEAD", 2, "ValueError"),
    }
    assert {(state, failures) for state, failures, _ in found.values()} == {("PUBLISHED", 0)}
    every_call_is_an_attempt_of_its_own(notes)
    assert len(calls(notes)) < 130, "must retry in pieces, not one by one"
    (dead,) = [one for one in log.deliveries("orders", "g", state="DEAD") if one.json()["n"] == 8]
    assert dead.last_error is not None and "bad amount" in dead.last_error
    (beside,) = [one for one in log.deliveries("orders", "g", limit=1000) if one.json()["n"] == 9]
    history = log.delivery("orders", "g", beside.event_id).history
    given_back = [one for one in history if one.outcome == "released"]
    assert given_back and given_back[0].error == "bad amount", (
        "events without a failure must show why they were retried"
    )
    assert not [one for one in history if one.outcome == "expired"]


def found_code(log: penstock.Log, n: int) -> str | None:
    (one,) = [one for one in log.deliveries("orders", "g", limit=1000) if one.json()["n"] == n]
    return one.error_code


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_invalid_return_value_is_narrowed_down_to_its_event(log: penstock.Log, isolation: str) -> None:
    append_acts(log, [None, "odd", None, "stranger", None])
    run_local_until_drained(log, subscription(handlers.plain, batch=50, isolation=isolation))
    found = outcomes(log)
    assert [found[n] for n in (2, 4)] == [("DEAD", 2, "invalid_handler")] * 2
    assert {found[n][:2] for n in (1, 3, 5)} == {("PUBLISHED", 0)}


def test_an_invalid_return_type_or_context_call_fails_the_events(log: penstock.Log) -> None:
    append_acts(log, [None] * 3)
    run_local_until_drained(log, subscription(handlers.always_a_list, batch=10, isolation="inline"))
    assert set(outcomes(log).values()) == {("DEAD", 2, "invalid_handler")}
    log.append("others", {}, type="t")
    run_local_until_drained(log, subscription(handlers.stranger_asks, batch=10, isolation="inline", stream="others"))
    (dead,) = log.deliveries("others", "g")
    assert dead.error_code == "invalid_input" and dead.last_error and "ctx.of" in dead.last_error


@pytest.mark.shows("K18")
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_call_holds_one_event_per_key_and_keys_keep_their_order(
    log: penstock.Log, notes: Path, isolation: str
) -> None:
    create_done_table(log.store.url)
    rng = random.Random(isolation)
    acts = [rng.choice([None] * 12 + ["error", "raise", "raise_once", "dead"]) for _ in range(120)]
    append_acts(log, acts, keys=9)
    run_local_until_drained(
        log, subscription(handlers.with_effects, batch=20, isolation=isolation, ordering="key", lanes=2)
    )
    for call in calls(notes):
        keys = [offset % 9 for offset, _ in call]
        assert len(keys) == len(set(keys)), "offsets must equal numbers here"
    good = [n for n, do in enumerate(acts, start=1) if do in (None, "raise_once")]
    assert sorted(done_offsets(log.store.url)) == good
    by_key = defaultdict(list)
    for n in done_offsets(log.store.url):
        by_key[n % 9].append(n)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    for key, numbers in by_key.items():
        assert log.state("orders", "g", f"k{key}") == {"seen": numbers}
    every_call_is_an_attempt_of_its_own(notes)


@pytest.mark.parametrize("what, code", [("exit", "process_died"), ("hang", "timed_out")])
def test_a_death_or_a_hang_is_narrowed_down_to_its_event(log: penstock.Log, notes: Path, what: str, code: str) -> None:
    create_done_table(log.store.url)
    acts: list[str | None] = [None] * 40
    acts[20] = what
    append_acts(log, acts, keys=40)
    once = penstock.Retry(max_attempts=1)
    run_local_until_drained(log, subscription(handlers.with_effects, batch=40, lanes=1, timeout_seconds=2, retry=once))
    found = outcomes(log)
    assert found.pop(21) == ("DEAD", 1, code)
    assert {(state, failures) for state, failures, _ in found.values()} == {("PUBLISHED", 0)}
    assert sorted(done_offsets(log.store.url)) == [n for n in range(1, 41) if n != 21]
    every_call_is_an_attempt_of_its_own(notes)


def test_an_unavailable_target_counts_no_failure(log: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.core.circuit.CIRCUIT_FIRST_SECONDS", 0.01)
    append_acts(log, [None, "down_once", None])
    run_local_until_drained(log, subscription(handlers.plain, batch=10))
    assert {(state, failures) for state, failures, _ in outcomes(log).values()} == {("PUBLISHED", 0)}


def test_batch_calls_run_concurrently(log: penstock.Log, notes: Path) -> None:
    acts: list[str | None] = [None] * 200
    acts[50] = "raise"
    append_acts(log, acts)
    run_local_until_drained(log, subscription(handlers.plain, batch=20, concurrency=4))
    found = outcomes(log)
    assert found.pop(51) == ("DEAD", 2, "ValueError")
    assert {state for state, _, _ in found.values()} == {"PUBLISHED"}
    every_call_is_an_attempt_of_its_own(notes)


def test_handlers_by_type_each_get_their_own_call(log: penstock.Log, notes: Path) -> None:
    log.append_many("orders", [{"payload": {}, "type": f"order.{n % 2}"} for n in range(10)])
    one = subscription(handlers.first, batch=10, types=["order.0"])
    two = subscription(handlers.rest, batch=10, types=["order.1"])
    one.join(two.policy, two.handlers[0])
    run_local_until_drained(log, one)
    assert sorted(read_notes(notes)) == [["first", *["order.0"] * 5], ["rest", *["order.1"] * 5]]


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_end_as_expected(log: penstock.Log, notes: Path, seed: int) -> None:
    """Whatever the handler raises, returns or kills: every event ends as if it had been called alone."""
    rng = random.Random(seed)
    create_done_table(log.store.url)
    acts = [
        rng.choice([None] * 20 + ["raise", "error", "text", "dead", "permanent", "raise_once", "odd"])
        for _ in range(150)
    ]
    if seed % 2:
        acts[rng.randrange(150)] = "exit"
    keyed = rng.random() < 0.5
    append_acts(log, acts, keys=rng.choice([7, 60]) if keyed else None)
    policy: dict[str, Any] = {"ordering": "key", "lanes": 2} if keyed else {"keyed": False}
    batch = rng.choice([3, 16, 150])
    run_local_until_drained(
        log, subscription(handlers.with_effects, batch=batch, concurrency=rng.choice([1, 3]), **policy)
    )
    expected = {
        None: ("PUBLISHED", 0),
        "raise_once": ("PUBLISHED", 1),
        "dead": ("DEAD", 1),
        "permanent": ("DEAD", 1),
    }
    found = {n: one[:2] for n, one in outcomes(log).items()}
    assert found == {n: expected.get(do, ("DEAD", 2)) for n, do in enumerate(acts, start=1)}
    good = [n for n, (state, _) in found.items() if state == "PUBLISHED"]
    assert sorted(done_offsets(log.store.url)) == sorted(good), "effects must happen once, and only of successes"
    assert sorted(event.json()["n"] for event in log.read("out")) == sorted(good)
    every_call_is_an_attempt_of_its_own(notes)


def test_a_slow_call_does_not_shrink_the_batch() -> None:
    pace = Pace(batch_seconds=2, batch_size=50_000, least=500)
    assert pace.limit == 500
    for _ in range(5):
        pace.ran(pace.limit, seconds=10)
    assert pace.limit == 500
    pace.saw(3)
    assert pace.limit == 500, "also near the end"
    pace.shrink(500)
    assert pace.limit < 500, "except after a death"


def test_invalid_batch_settings_are_refused() -> None:
    for wrong in (0, -1, 2.5, True, "many", 50_001):
        with pytest.raises(penstock.InvalidInput, match="batch"):
            Policy(batch=wrong)  # type: ignore[arg-type]
    with pytest.raises(penstock.InvalidInput, match="batch"):
        Policy(batch=200, batch_size=100)
    app = penstock.App("sqlite:///x.db")
    app.subscribe("orders", group="g", batch=10)(handlers.plain)
    with pytest.raises(penstock.PolicyConflict, match="batch"):
        app.subscribe("orders", group="g")(handlers.plain)


def test_batch_handlers_run_in_a_harness_and_by_run_handler() -> None:
    app = penstock.App(name="shop")
    app.subscribe("orders", group="g", batch=10, retry=RETRY_AT_ONCE)(screen)
    with Harness(app) as harness:
        for n in range(25):
            harness.append("orders", {"n": n, "bad": n == 3, "worse": n == 17})
        drained = harness.drain()
        assert (drained.published, drained.dead) == (23, 2)
        assert sorted(one.payload["n"] for one in harness.emitted("seen")) == [n for n in range(25) if n not in (3, 17)]
    assert run_handler(screen, {"n": 1}, batch=True).emitted[0].payload == {"n": 1}
    failed = run_handler(screen, {"n": 1, "bad": True}, batch=True)
    assert (
        failed.outcome == "failed" and failed.error is not None and failed.error.message == "bad" and not failed.emitted
    )
    assert isinstance(run_handler(screen, {"n": 1, "worse": True}, batch=True).exception, ZeroDivisionError)


def screen(events: list[penstock.Event], ctx: Any) -> dict[Any, str]:
    for event in events:
        ctx.of(event).emit("seen", {"n": event.json()["n"]}, type="t")
        1 / (not event.json().get("worse"))
    return {event.event_id: "bad" for event in events if event.json().get("bad")}


def test_one_raise_leaves_no_more_rows_than_its_call_had_events(log: penstock.Log) -> None:
    append_acts(log, [None] * 500 + ["raise"] + [None] * 499)
    run_local_until_drained(log, subscription(handlers.plain, batch=50, isolation="inline"))
    with raw(log.store.url) as sql:
        ((rows,),) = sql("select count(*) from penstock.deliveries")
    assert rows <= 50
