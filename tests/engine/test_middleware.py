"""`@app.middleware`: around a call of a handler, where it runs, and what it may do with its call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.declare.around import Around, middleware_of
from penstock.declare.subscription import Subscription
from penstock.testing import Harness
from tests.support.children import around
from tests.support.declarations import subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.job_engine import job_type, run_jobs_until_drained
from tests.support.local_engine import run_local_until_drained
from tests.support.notes import read_notes

ONCE = penstock.Retry(max_attempts=1)


def within(one: Subscription, *functions: Any) -> Subscription:
    one.around = Around([middleware_of(function) for function in functions])
    return one


@pytest.fixture
def file_log(tmp_path: Path) -> Iterator[penstock.Log]:
    """A log in a file, where the store does not matter."""
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        yield log


def lines(notes: Path) -> list[str]:
    return [" ".join(one) for one in read_notes(notes)]


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_the_first_is_outermost_and_runs_where_the_handler_runs(log: penstock.Log, notes: Path, isolation: str) -> None:
    log.append("orders", {}, type="t")
    log.append("orders", {"do": "raise"}, type="t")
    one = subscription(around.handle, isolation=isolation, retry=ONCE)
    run_local_until_drained(log, within(one, around.outer, around.inner))
    said = lines(notes)
    assert [line.split()[0] for line in said] == ["outer", "handle", "returned", "outer", "handle", "raised"]
    assert said[-1] == "raised ValueError"
    assert (int(said[0].split()[1]) == os.getpid()) is (isolation == "inline")
    assert [str(row.state) for row in log.deliveries("orders", "g")] == ["PUBLISHED", "DEAD"]


CASES = {  # what a middleware does: the state and the error code of its event
    "swallow": ("PUBLISHED", None),
    "twice": ("DEAD", "invalid_hook"),
    "never": ("PUBLISHED", None),
    "raise": ("DEAD", "KeyError"),
    "replace": ("PUBLISHED", None),
    "slow": ("DEAD", "timed_out"),
}
PLAIN = {"after": ("DEAD", "Permanent"), "coroutine": ("DEAD", "invalid_hook"), "thread": ("DEAD", "invalid_hook")}


@pytest.mark.parametrize(
    ("function", "middleware", "more"),
    [
        (around.handle, around.inner, PLAIN),
        (around.handle, around.inner_async, {"forget": ("DEAD", "invalid_hook"), "wait": ("DEAD", "invalid_hook")}),
        (around.handle_async, around.inner_async, {"forget": ("DEAD", "invalid_hook"), "wait": ("PUBLISHED", None)}),
    ],
    ids=["plain", "mixed", "async"],
)
def test_whatever_a_middleware_does_with_its_call_is_the_outcome_of_its_event(
    file_log: penstock.Log, notes: Path, function: Any, middleware: Any, more: dict[str, Any]
) -> None:
    log, cases = file_log, {**CASES, **more}
    if function is around.handle and middleware is around.inner_async:
        cases["slow"] = ("DEAD", "RuntimeError")  # no event loop runs: it cannot sleep
    for name in cases:
        log.append("orders", {"around": name, "do": "raise" if name == "swallow" else None}, type="t")
    run_local_until_drained(log, within(subscription(function, retry=ONCE, timeout_seconds=1), middleware))
    found = {row.json()["around"]: (str(row.state), row.error_code) for row in log.deliveries("orders", "g")}
    assert found == cases
    said = lines(notes)
    assert {"swallowed", "refused", "never"} <= set(said)
    called = {int(line.split()[1]) for line in said if line.startswith("handle")}
    skipped = {"never", "raise", "coroutine", "forget"} | (
        {"wait"} if cases.get("wait", "")[0:1] == ("DEAD",) else set()
    )
    assert called == {n for n, name in enumerate(cases, 1) if name not in skipped}


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_effects_of_a_middleware_belong_to_the_event(log: penstock.Log, notes: Path, isolation: str) -> None:
    create_done_table(log.store.url)
    for do in (None, "raise", None):
        log.append("orders", {"do": do}, type="t", ordering_key="ada")
    run_local_until_drained(log, within(subscription(around.keyed, retry=ONCE, isolation=isolation), around.effects))
    assert done_offsets(log.store.url) == [1, 3]
    assert [event.json()["offset"] for event in log.read("seen")] == [1, 3]
    assert log.state("orders", "g", "ada") == {"around": 2}


def test_a_death_loses_no_effect_of_a_middleware(file_log: penstock.Log, notes: Path) -> None:
    """The handlers have no context, but what is around them has: their successes are not settled without effects."""
    log = file_log
    for do in (None, None, "kill", None):
        log.append("orders", {"do": do}, type="t")
    run_local_until_drained(log, within(subscription(around.handle, retry=ONCE), around.emitting))
    assert sorted(event.json()["offset"] for event in log.read("seen")) == [1, 2, 4]


def test_a_group_does_not_become_keyed_by_a_middleware(log: penstock.Log) -> None:
    one = within(subscription(around.handle, retry=ONCE, isolation="inline"), around.effects)
    log.append("orders", {}, type="t", ordering_key="ada")
    run_local_until_drained(log, one)
    assert not log.groups("orders")[0].keyed
    assert log.deliveries("orders", "g")[0].error_code == "state_needs_key"


def test_batch_handlers_have_the_list_and_their_answer_survives(log: penstock.Log, notes: Path) -> None:
    for do in (None, "text", None):
        log.append("orders", {"do": do}, type="t")
    one = subscription(around.handle_many, batch=50, retry=ONCE, isolation="inline")
    run_local_until_drained(log, within(one, around.many_effects, around.inner))
    assert lines(notes) == ["handle 3"]
    assert [str(row.state) for row in log.deliveries("orders", "g")] == ["PUBLISHED", "DEAD", "PUBLISHED"]
    assert [event.json()["offset"] for event in log.read("seen")] == [1, 3]


@pytest.mark.parametrize(
    ("function", "middleware"), [(around.job, (around.outer, around.inner)), (around.job_async, (around.inner_async,))]
)
def test_jobs_have_it_too_and_keep_their_results(
    file_log: penstock.Log, notes: Path, function: Any, middleware: Any
) -> None:
    log = file_log
    given = Around([middleware_of(one) for one in middleware])
    cases = {None: 7, "replace": {"instead": 1}, "never": None, "twice": "invalid_hook", "raise": "KeyError"}
    ids = {name: log.submit("a", {"around": name}).id for name in cases}
    run_jobs_until_drained(log, replace(job_type(function, retry=ONCE), around=given))
    found = {name: log.job(one) for name, one in ids.items()}
    assert {name: job.result or job.error_code for name, job in found.items()} == cases
    assert sum(line.startswith("job") for line in lines(notes)) == 3  # not for "never" and "raise"
    assert all(int(line.split()[1]) != os.getpid() for line in lines(notes) if line.startswith(("job", "outer")))


def test_an_app_and_its_harness_call_it(notes: Path) -> None:
    app = penstock.App(name="shop")

    @app.subscribe("orders", group="g")
    def handle(event: Any) -> None:
        raise ValueError("no")

    app.middleware(around.outer)

    @app.middleware
    def translate(call: Any, event: Any, ctx: Any) -> Any:
        try:
            return call()
        except ValueError as error:
            raise penstock.Permanent("translated") from error

    with Harness(app) as harness:
        harness.append("orders", {})
        drained = harness.drain()
        assert (drained.dead, [str(one) for one in drained.exceptions]) == (1, ["translated"])
    assert lines(notes)[-1] == "raised Permanent"


def generator(call: Any, event: Any, ctx: Any) -> Any:
    yield call()


async def async_generator(call: Any, event: Any, ctx: Any) -> Any:
    yield await call()


class Generating:
    def __call__(self, call: Any, event: Any, ctx: Any) -> Any:
        yield call()


@pytest.mark.parametrize(
    "bad",
    [generator, async_generator, Generating(), lambda call, event: None, lambda call, event, ctx, *, x: None, "x"],
)
def test_what_is_no_middleware_is_refused(bad: Any) -> None:
    app = penstock.App()
    with pytest.raises(penstock.InvalidHook):
        app.middleware(bad)
    assert app.around.middleware == []


def test_a_plain_middleware_around_an_async_function_is_refused_at_declaration() -> None:
    for declare in (
        lambda app: app.subscribe("orders", group="g"),
        lambda app: app.job("a"),
        lambda app: app.schedule("0 3 * * *"),
    ):
        before, after = penstock.App(), penstock.App()
        before.middleware(around.outer)
        with pytest.raises(penstock.InvalidHook, match="async"):
            declare(before)(around.job_async)
        assert not before.subscriptions and not before.jobs and not before.schedules
        declare(after)(around.job_async)
        with pytest.raises(penstock.InvalidHook, match="async"):
            after.middleware(around.outer)
        after.middleware(around.inner_async)
