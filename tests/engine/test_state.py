"""Keyed state within a lease against a model of plain dicts: what events see, and what is settled."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.core.batch import Events
from penstock.core.columns import COLUMNS, RowColumns
from penstock.engine.handlers.runner import Part, Report, Runner
from penstock.engine.handlers.state import LeaseState, as_written
from penstock.engine.isolation.marks import Marks
from penstock.log.keyed_state import WithTtl

KEYS = ("new", "one", "two")
BEFORE: dict[str, dict[str, Any]] = {"one": {"a": 1}, "two": {"a": 1, "b": [2]}}
NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("set"), NAMES, VALUES),
    st.tuples(st.just("set"), NAMES, VALUES),
    st.tuples(st.just("forget"), NAMES, VALUES),
    st.tuples(st.just("remove"), NAMES, st.none()),
)
ENDS = st.sampled_from(["done", "done", "done", "done", "emit", "refusable", "fail"])
Step = tuple[str, str, Any]
Plan = tuple[str, list[Step], str]  # a key, what its event does, and how it ends
PLANS = st.lists(st.tuples(st.sampled_from(KEYS), st.lists(STEPS, max_size=3), ENDS), max_size=12)


def _events(plans: list[Plan]) -> Events:
    fields: dict[str, Any] = dict.fromkeys(COLUMNS) | {"event_type": "t", "payload": b"{}"}
    rows = [{**fields, "offset": place + 1, "ordering_key": key} for place, (key, _, _) in enumerate(plans)]
    return Events(RowColumns([tuple(row.values()) for row in rows]), "orders", None)


def _run(plans: list[Plan], types: list[str] | None) -> tuple[Report, list[dict[str, Any]]]:
    """Handle events as planned. With `types` the runner finds the handler of each event, on its longer code path."""
    app = penstock.App("sqlite:///unused.db")
    seen: list[dict[str, Any]] = []

    @app.subscribe("orders", group="g", types=types, isolation="inline")
    def handle(event: penstock.Event, ctx: penstock.Context) -> None:
        _, steps, end = plans[event.offset - 1]
        seen.append(dict(ctx.state))
        for what, name, value in steps:
            if what == "remove":
                ctx.state[name] = None
            else:
                ctx.state.set(name, value, ttl_seconds=60 if what == "forget" else None)
        if end in ("emit", "refusable"):
            ctx.emit("out", {}, type="t", event_id=uuid.UUID(int=event.offset) if end == "refusable" else None)
        if end == "fail":
            raise ValueError("as planned")

    part = Part(_events(plans), 0, Marks(1, len(plans) or 1), LeaseState(BEFORE), {}, token=1)
    return Runner(app.subscriptions[0]).run(part), seen


def _written(steps: list[Step]) -> dict[str, Any]:
    return {name: WithTtl(value, 60) if what == "forget" else value for what, name, value in steps}


@pytest.mark.shows("K27")
@pytest.mark.parametrize("types", [None, ["t"]], ids=["short", "long"])
@given(plans=PLANS)
def test_the_state_of_a_lease_matches_a_model(types: list[str] | None, plans: list[Plan]) -> None:
    report, seen = _run(plans, types)
    now = {key: dict(BEFORE.get(key, {})) for key in KEYS}
    together: dict[str, dict[str, Any]] = {}
    one_by_one: dict[int, dict[str, Any]] = {}
    itemized = False
    for place, (key, steps, end) in enumerate(plans):
        assert seen[place] == now[key], "events must see the state of earlier successes only"
        if end == "fail":
            continue
        written = _written(steps)
        itemized = itemized or end == "refusable"
        if itemized:
            one_by_one[place] = written
        elif written:
            together.setdefault(key, {}).update(written)
        for name, value in written.items():
            now[key][name] = value.value if isinstance(value, WithTtl) else value
            if value is None:
                del now[key][name]
    assert {key: as_written(values) for key, values in report.state.items()} == together
    told = {place: as_written(one.state) for place, one in report.effects.items()}
    assert told == {place: written for place, written in one_by_one.items() if written or place in told}


@pytest.mark.shows("K27")
@pytest.mark.parametrize("types", [None, ["t"]], ids=["short", "long"])
def test_replacing_the_whole_state_fails_the_event(types: list[str] | None) -> None:
    """An assignment of the whole state would be lost, so it is refused."""
    app = penstock.App("sqlite:///unused.db")

    @app.subscribe("orders", group="g", types=types, isolation="inline")
    def handle(event: penstock.Event, ctx: penstock.Context) -> None:
        if event.offset == 1:
            ctx.state = {"a": 2}  # type: ignore[assignment]
        else:
            ctx.state["a"] = 3

    plans: list[Plan] = [("one", [], "done"), ("one", [], "done")]
    part = Part(_events(plans), 0, Marks(1, 2), LeaseState(BEFORE), {}, token=1)
    report = Runner(app.subscriptions[0]).run(part)
    assert {place: why.code for place, why in report.failed.items()} == {0: "invalid_input"}
    assert report.state == {"one": {"a": 3}}
