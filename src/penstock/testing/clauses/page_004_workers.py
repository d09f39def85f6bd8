"""Page 004: what workers add to the lifecycle of a job, and the page's timelines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from penstock.app import App
from penstock.engine.local.engine import LocalEngine
from penstock.errors import LeaseLost
from penstock.testing.clauses.bench import Bench, guarantees, refuses
from penstock.testing.clauses.page_004 import claim, expire, status, submit, try_claim
from penstock.testing.clauses.registry import clause

_PATIENCE_SECONDS = 60.0


class Mail:
    """The schema of a payload. It has what a pydantic model has, so that the checks need no extra."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}

    @classmethod
    def model_validate_json(cls, payload: bytes) -> str:
        to = orjson.loads(payload).get("to")
        if not isinstance(to, str):
            raise ValueError("to: a string is wanted")
        return to


def send(to: str) -> str:
    """Return to whom the mail was sent, so that the job's result shows that this ran."""
    return to


def raise_or_wait(payload: dict[str, Any], ctx: Any) -> None:
    """Raise, or run until told to end."""
    if payload["n"] == 1:
        raise ValueError("boom")
    while not ctx.cancelled:
        time.sleep(0.01)
    raise ValueError("told to end")


@contextmanager
def _at_work(b: Bench, app: App) -> Iterator[LocalEngine]:
    """Do the app's jobs in a process of their own, until the block ends. Failures are expected, and not logged."""
    logger = logging.getLogger("penstock")
    disabled, logger.disabled = logger.disabled, True
    engine = LocalEngine(b.log, jobs=app.jobs)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
        stopped = engine.wait(_PATIENCE_SECONDS)
        logger.disabled = disabled
        assert stopped, "the worker does not stop"


def _wait(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.01)


@clause("004-17", "a worker sends a heartbeat every 5 seconds, unless its type says otherwise")
def five_seconds(b: Bench) -> None:
    app = App(name="page")
    app.job(b.stream)(send)
    app.job(f"{b.stream}:slow", heartbeat_seconds=20)(send)
    assert [one.policy.heartbeat_seconds for one in app.jobs] == [5, 20]


@clause("004-28", "the mode without a nack: when a function raises, its heartbeats stop, and the claim expires")
def mode_without_nack(b: Bench) -> None:
    failing, working = submit(b, 1), submit(b, 2)
    app = App(name="page")
    app.job(b.stream, on_error="expire", heartbeat_seconds=0.05, concurrency=2)(raise_or_wait)
    with _at_work(b, app) as engine:
        _wait(lambda: engine.snapshot()[app.jobs[0].name]["lost"] == 1, "the function to raise")
        _wait(lambda: status(b, working)[0] == "CLAIMED", "the other job to begin")
        claimed_at = b.clock.now()
        b.clock.advance(20)
        _wait(lambda: b.log.job(working).heartbeat_at == b.clock.now(), "a heartbeat of the other job")
        shown = b.log.job(failing)
        assert (shown.status, shown.failures, shown.heartbeat_at) == ("CLAIMED", 0, claimed_at)
        b.log.cancel_job(working)
        _wait(lambda: status(b, working)[0] == "DEAD", "the other job to end")
    expire(b, 10)
    shown = b.log.job(failing)
    assert (shown.status, shown.attempts, shown.error_code) == ("PENDING", 1, "lease_expired")


@clause("004-29", "a payload is validated before its function runs")
def validated_first(b: Bench) -> None:
    good, bad = b.log.submit(b.stream, {"to": "ada"}).id, b.log.submit(b.stream, {"to": 7}).id
    app = App(name="page")
    app.job(b.stream, schema=Mail)(send)
    with _at_work(b, app):
        shown = [b.log.wait_for_job(one, timeout=_PATIENCE_SECONDS) for one in (good, bad)]
    assert [(one.status, one.result) for one in shown] == [("PUBLISHED", "ada"), ("DEAD", None)]
    assert shown[1].error_code == "invalid_job"


@clause("004-30", "an invalid payload is not retried: it is DEAD, or, as on the page, completed")
def invalid_is_not_retried(b: Bench) -> None:
    app = App(name="page")
    app.job(f"{b.stream}:dead", schema=Mail)(send)
    app.job(f"{b.stream}:completed", schema=Mail, on_invalid="complete")(send)
    jobs = [b.log.submit(one.type, {"to": 7}).id for one in app.jobs]
    with _at_work(b, app):
        shown = [b.log.wait_for_job(one, timeout=_PATIENCE_SECONDS) for one in jobs]
    assert [(one.status, one.attempts) for one in shown] == [("DEAD", 1), ("PUBLISHED", 1)]
    assert "| an invalid payload is completed |" in guarantees()


def _timeline(b: Bench) -> Callable[[float], None]:
    """Return a function that moves the clock to so many seconds from now, and takes back what has expired."""
    begin = b.clock.now()

    def at(seconds: float) -> None:
        expire(b, seconds - (b.clock.now() - begin).total_seconds())

    return at


@clause("004-31", "the page's first timeline: two heartbeats, and done after 12 seconds")
def first_timeline(b: Bench) -> None:
    at = _timeline(b)
    job = submit(b)
    assert status(b, job) == ("PENDING", 0)
    at(0.1)
    claim(b)
    assert status(b, job) == ("CLAIMED", 1)
    for moment in (5, 10):
        at(moment)
        assert b.log.heartbeat(job, "worker-1") == "extended" and b.log.job(job).heartbeat_at == b.clock.now()
    at(12)
    b.log.complete_job(job, "worker-1")
    assert status(b, job) == ("PUBLISHED", 1)
    at(100)
    assert status(b, job) == ("PUBLISHED", 1) and try_claim(b) is None


@clause("004-32", "the page's second timeline: a crash after 8 seconds, unclaimed by 38, done at the second attempt")
def second_timeline(b: Bench) -> None:
    at = _timeline(b)
    job = submit(b)
    at(0.1)
    crashed = claim(b)
    at(5)
    b.log.heartbeat(job, "worker-1")
    at(8)  # worker-1 is gone
    at(34.9)
    assert status(b, job) == ("CLAIMED", 1), "its last heartbeat was 29.9 seconds ago"
    at(38)
    assert status(b, job) == ("PENDING", 1)
    at(39)
    again = claim(b, "worker-2")
    assert (again.id, again.attempts) == (job, 2)
    refuses(LeaseLost, lambda: b.log.heartbeat(job, "worker-1", token=crashed.token))
    at(44)
    b.log.complete_job(job, "worker-2")
    assert status(b, job) == ("PUBLISHED", 2)
