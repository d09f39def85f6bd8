"""`Retry(dead_for=…, retry_for=…)`: which exceptions end an event at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine.handlers.runner import TimedOut, is_final
from tests.support.children import retry_classes
from tests.support.children.retry_classes import CLASSES, Bad, Odd
from tests.support.declarations import pipeline, subscription
from tests.support.job_engine import job_type, run_jobs_until_drained
from tests.support.local_engine import run_local_until_drained
from tests.support.running import PYTHONPATH

TWICE: dict[str, Any] = {"max_attempts": 2, "base_seconds": 0, "jitter": 0}
ONCE = {"bad", "odd", "value", "key", "exit", "permanent"}  # with `BY_CLASS`; the others are tried twice
BY_CLASS = penstock.Retry(**TWICE, dead_for=(Bad, Odd), retry_for=(ConnectionError, Bad))


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (retry_classes.handle, {}),
        (retry_classes.handle, {"isolation": "inline", "concurrency": 3}),
        (retry_classes.handle_async, {"concurrency": 3}),
        (retry_classes.handle_many, {"batch": 50, "isolation": "inline"}),
    ],
    ids=["process", "inline", "async", "batch"],
)
def test_the_class_of_an_exception_decides_whether_an_event_is_retried(
    log: penstock.Log, function: Any, options: dict[str, Any]
) -> None:
    log.append_many("orders", [{"payload": {"raise": name}, "type": "t"} for name in [*CLASSES, None]])
    run_local_until_drained(log, subscription(function, retry=BY_CLASS, **options))
    found = {one.json()["raise"]: (str(one.state), one.failures) for one in log.deliveries("orders", "g")}
    assert found == {name: ("DEAD", 1 if name in ONCE else 2) for name in CLASSES} | {None: ("PUBLISHED", 0)}
    assert log.groups("orders")[0].retry == penstock.Retry(**TWICE)


@pytest.mark.parametrize("function", [retry_classes.call, retry_classes.call_async])
def test_jobs_are_retried_by_class_too(log: penstock.Log, function: Any) -> None:
    ids = {name: log.submit("a", {"raise": name}).id for name in CLASSES}
    run_jobs_until_drained(log, job_type(function, retry=BY_CLASS))
    assert {name: log.job(one).failures for name, one in ids.items()} == {
        name: 1 if name in ONCE else 2 for name in CLASSES
    }


def test_classes_of_an_apps_own_file_reach_its_handlers_process(log_url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        f"""
import penstock

app = penstock.App({log_url!r}, name="shop")


class Refused(Exception):
    pass


@app.subscribe("orders", group="g", retry=penstock.Retry(dead_for=(Refused,)))
def handle(event):
    raise Refused("no")


if __name__ == "__main__":
    app.run(engine="local", until_drained=True)
"""
    )
    with penstock.open(log_url) as log:
        log.append("orders", {}, type="t")
        subprocess.run(
            [sys.executable, "shop.py"], cwd=tmp_path, check=True, env={"PYTHONPATH": PYTHONPATH}, timeout=60
        )
        (one,) = log.deliveries("orders", "g")
    assert (one.state, one.failures, one.error_code) == ("DEAD", 1, "Refused")


def test_a_time_limit_is_retried_whatever_the_classes_say() -> None:
    nothing = penstock.Retry(retry_for=())
    assert is_final(ValueError(), nothing) and not is_final(TimedOut(1), nothing)


@pytest.mark.parametrize("name", ["dead_for", "retry_for"])
@pytest.mark.parametrize(
    "bad",
    [ValueError, [ValueError], ("ValueError",), (ValueError(),), (int,), (KeyboardInterrupt,), (BaseException,), None],
    ids=str,
)
def test_what_is_no_tuple_of_exception_classes_is_refused(name: str, bad: Any) -> None:
    if bad is None and name == "retry_for":
        return
    with pytest.raises(penstock.InvalidInput, match=name):
        penstock.Retry(**{name: bad})


@pytest.mark.parametrize("signal", [penstock.Permanent, penstock.Unavailable, retry_classes.Later])
def test_signals_keep_their_own_meaning(signal: type[Exception]) -> None:
    with pytest.raises(penstock.InvalidInput, match=signal.__name__):
        penstock.Retry(dead_for=(signal,))
    everything = penstock.Retry(dead_for=(Exception,))
    assert everything.gives_up(signal("no") if signal is not retry_classes.Later else signal()) is (
        signal is penstock.Permanent
    )


def test_classes_are_refused_where_they_would_be_lost(log: penstock.Log) -> None:
    log.create_group("orders", "g")
    for retry in (penstock.Retry(dead_for=(ValueError,)), penstock.Retry(retry_for=())):
        with pytest.raises(penstock.InvalidInput, match=r"@app\.subscribe"):
            log.create_group("orders", "other", retry=retry)
        with pytest.raises(penstock.InvalidInput, match=r"@app\.subscribe"):
            log.set_group("orders", "g", retry=retry)
        with pytest.raises(penstock.InvalidInput, match=r"@app\.subscribe"):
            log.declare_job("a", retry=retry)
        with pytest.raises(penstock.InvalidInput, match=r"@app\.subscribe"):
            pipeline(lambda frame: frame, penstock.sinks.Stream("out"), retry=retry)
    assert [one.group_name for one in log.groups("orders")] == ["g"]
