"""Submit: a job is stored once, in one's own transaction or in the caller's, or refused."""

from __future__ import annotations

import sqlite3
import uuid
from datetime import datetime, timedelta

import psycopg
import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.jobs import types_claimed
from tests.support.raw_sql import RawSql, raw
from tests.support.roles import role_of


@pytest.mark.shows("J01")
@pytest.mark.clause("004-1", "004-6", "004-9")
def test_a_submitted_job_waits_with_an_id_and_no_attempts(log: penstock.Log) -> None:
    job = log.submit("email:send", {"to": "ada"})
    assert isinstance(job.id, uuid.UUID) and not job.duplicate
    shown = log.job(job.id)
    assert (shown.status, shown.attempts, shown.type, shown.queue, shown.priority) == (
        "PENDING",
        0,
        "email:send",
        "default",
        0,
    )
    assert shown.json() == {"to": "ada"} and shown.worker is None


@pytest.mark.shows("J01")
def test_the_same_id_again_gives_one_job(log: penstock.Log) -> None:
    known = penstock.event_id("mail-7")
    first = log.submit("email:send", {"to": "ada"}, event_id=known)
    again = log.submit("email:send", {"to": "ada"}, event_id=known)
    assert (first.id, again.id, first.duplicate, again.duplicate) == (known, known, False, True)
    assert len(log.jobs()) == 1
    with pytest.raises(penstock.DuplicateMismatch):
        log.submit("email:send", {"to": "bob"}, event_id=known)


@pytest.mark.shows("J01")
@pytest.mark.clause("004-7", "004-8")
def test_many_jobs_are_appended_at_the_end_all_or_none(log: penstock.Log) -> None:
    first = log.submit("a", {"n": 0})
    done = log.submit_many("a", [{"payload": {"n": n}} for n in range(1, 4)])
    mixed = log.submit_many(
        [{"type": "b", "payload": {"n": 4}, "priority": 9}, {"type": "a", "payload": {"n": 5}, "max_attempts": 7}]
    )
    assert [job.id for job in log.jobs()] == [first.id, *done.ids, *mixed.ids]
    assert log.job(mixed.ids[0]).priority == 9 and log.job(mixed.ids[1]).max_attempts == 7
    with pytest.raises(penstock.InvalidInput, match="Job 1: "):
        log.submit_many("a", [{"payload": 1}, {"payload": 2, "priority": 10}])
    with pytest.raises(penstock.MissingField, match="Job 0: "):
        log.submit_many("a", [{"payload": None}])
    with pytest.raises(penstock.InvalidInput, match="unknown field 'to'"):
        log.submit_many("a", [{"payload": 1, "to": "ada"}])
    assert len(log.jobs()) == 6


@pytest.mark.shows("J01")
def test_a_job_joins_the_callers_transaction(log: penstock.Log) -> None:
    connect = sqlite3.connect if log.store.kind == "sqlite" else psycopg.connect
    place = log.store.url.removeprefix("sqlite:///") if log.store.kind == "sqlite" else log.store.url
    connection = connect(place)
    try:
        if log.store.kind == "sqlite":
            connection.execute("begin")
        gone = log.submit("a", {"n": 1}, connection=connection, unique="k")
        connection.rollback()
        if log.store.kind == "sqlite":
            connection.execute("begin")
        kept = log.submit("a", {"n": 2}, connection=connection, unique="k")
        assert log.jobs() == []
        connection.commit()
        with pytest.raises(penstock.InvalidInput):
            log.submit("a", {}, connection=connection, unique="k", on_conflict="replace")
    finally:
        connection.close()
    assert [job.id for job in log.jobs()] == [kept.id] and gone.id != kept.id


@pytest.mark.shows("J01", "X08")
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"priority": 10}, penstock.InvalidInput),
        ({"priority": -1}, penstock.InvalidInput),
        ({"priority": True}, penstock.InvalidInput),
        ({"queue": "a:b"}, penstock.InvalidName),
        ({"queue": ""}, penstock.MissingField),
        ({"type": "a b"}, penstock.InvalidName),
        ({"type": "a" * 128}, penstock.InvalidName),
        ({"max_attempts": 0}, penstock.InvalidInput),
        ({"payload": None}, penstock.MissingField),
        ({"payload": {"x": float("nan")}}, penstock.InvalidInput),
        ({"available_at": datetime(2030, 1, 1)}, penstock.NaiveDatetime),
        ({"unique": "a\0"}, penstock.InvalidInput),
        ({"unique": ""}, penstock.InvalidInput),
        ({"unique_for": 5}, penstock.InvalidInput),
        ({"unique": "k", "unique_for": -5}, penstock.InvalidInput),
        ({"on_conflict": "ignore"}, penstock.InvalidInput),
    ],
)
def test_bad_jobs_are_refused_and_nothing_is_stored(
    log: penstock.Log, wrong: dict[str, object], error: type[Exception]
) -> None:
    given = {"type": "a", "payload": {}} | wrong
    with pytest.raises(error):
        log.submit(given.pop("type"), given.pop("payload"), **given)  # type: ignore[arg-type]
    assert log.jobs() == [] and log.streams() == []


@pytest.mark.shows("J01")
def test_only_jobs_are_in_streams_of_jobs(log: penstock.Log) -> None:
    for append in (
        lambda: log.append("jobs:default:0:a", {}, type="a"),
        lambda: log.append_many("jobs:default:0:a", [{"payload": {}, "type": "a"}]),
        lambda: log.append_many("jobs:other", [{"payload": {}, "type": "a", "headers": {}}]),
    ):
        with pytest.raises(penstock.ReservedStream):
            append()
    log.append("orders", {}, type="t")
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=1, claimed_by="w")
    assert lease is not None
    with pytest.raises(penstock.PenstockError, match="one of jobs"):
        lease.settle(emit=[{"stream": "jobs:default:0:a", "type": "a", "payload": {}}])
    with pytest.raises(penstock.ReservedStream):
        penstock.sinks.Stream("jobs:default:0:a", type="a")
    assert log.streams() == ["orders"]


def _emits_a_job(event: penstock.Event, ctx: penstock.Context) -> None:
    ctx.emit("jobs:default:0:a", {}, type="a")


@pytest.mark.shows("J01")
def test_a_handler_emits_no_job(log: penstock.Log, log_url: str) -> None:
    log.append("orders", {}, type="t")
    app = penstock.App(log_url, name="shop")
    app.subscribe("orders", group="g", retry=penstock.Retry(max_attempts=1), isolation="inline")(_emits_a_job)
    app.run(engine="local", until_drained=True)
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert "one of jobs" in (dead.last_error or "") and log.streams() == ["orders"]


@pytest.mark.shows("J01")
@pytest.mark.parametrize(
    ("stream", "event_type"),
    [
        ("jobs:a", "a"),
        ("jobs:default:a", "a"),
        ("jobs::0:a", "a"),
        ("jobs:default:10:a", "a"),
        ("jobs:default:x:a", "a"),
        ("jobs:default:0:", "a"),
        ("jobs:default:0:a", "b"),
        ("jobs:default:0:a:b", "b"),
    ],
)
def test_a_raw_insert_is_a_job_or_is_refused(log: penstock.Log, log_url: str, stream: str, event_type: str) -> None:
    def insert(sql: RawSql, stream: str, event_type: str) -> None:
        payload = "'{}'" if sql.kind == "postgresql" else "x'7b7d'"
        sql(
            "insert into penstock.events (stream, event_id, event_type, payload) "
            f"values ('{stream}', '{uuid.uuid4()}', '{event_type}', {payload})"
        )

    with raw(log_url) as sql:
        with pytest.raises(sql.refusal, match="reserved_stream"):
            insert(sql, stream, event_type)
        insert(sql, "jobs:default:0:a:b", "a:b")
    assert [job.type for job in log.jobs()] == ["a:b"]


@pytest.mark.shows("J01")
def test_the_sql_function_appends_no_job(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with role_of("producer", postgres_log_url) as (url, _), penstock.open(url) as log, psycopg.connect(url) as caller:
        for payload in ("'{}'::jsonb", "'{}'::bytea"):
            with pytest.raises(psycopg.Error, match="penstock: reserved_stream: ") as caught:
                caller.execute(f"select penstock.append('jobs:default:0:a', 'a', {payload})")  # type: ignore[arg-type]
            assert caught.value.sqlstate == "PS003"
            caller.rollback()
        job = log.submit("a", {}, connection=caller)
        caller.commit()
    assert [one.id for one in postgres_log.jobs()] == [job.id]


@pytest.mark.shows("J15")
def test_a_unique_job_is_stored_once_while_it_is_unfinished(log: penstock.Log) -> None:
    first = log.submit("report", {"day": 1}, unique="daily")
    again = log.submit("report", {"day": 2}, unique="daily")
    assert again.duplicate and again.id == first.id
    with pytest.raises(penstock.JobExists):
        log.submit("report", {"day": 3}, unique="daily", on_conflict="raise")
    assert not log.submit("other", {}, unique="daily").duplicate, "a key belongs to its type"
    assert not log.submit("report", {}, unique="daily", queue="slow").duplicate, "and to its queue"
    job = log.claim_job("w", ["report"])
    assert job is not None and log.submit("report", {"day": 4}, unique="daily").id == first.id, "claimed"
    log.complete_job(job.id, "w")
    assert log.submit("report", {"day": 5}, unique="daily").id not in (first.id, None)
    assert len(log.jobs(type="report", queue="default")) == 2


@pytest.mark.shows("J15")
def test_a_unique_key_can_be_kept_for_a_time(clocked: penstock.Log, clock: VirtualClock) -> None:
    first = clocked.submit("report", {}, unique="hourly", unique_for=3600)
    job = clocked.claim_job("w", ["report"])
    assert job is not None
    clocked.complete_job(job.id, "w")
    clock.advance(3599)
    assert clocked.submit("report", {}, unique="hourly", unique_for=3600).id == first.id
    clock.advance(1)
    assert clocked.submit("report", {}, unique="hourly").id != first.id


@pytest.mark.shows("J15")
def test_a_waiting_unique_job_can_be_replaced(clocked: penstock.Log, clock: VirtualClock) -> None:
    """Debounce: every change puts the job off, and only the last one runs."""
    ids = []
    for n in range(3):
        later = clock.now() + timedelta(seconds=10)
        ids.append(clocked.submit("index", {"n": n}, unique="doc-7", on_conflict="replace", available_at=later).id)
        clock.advance(5)
    assert [(job.status, job.reason) for job in clocked.jobs()] == [
        ("DEAD", "replaced"),
        ("DEAD", "replaced"),
        ("PENDING", None),
    ]
    clock.advance(5)
    running = clocked.claim_job("w", ["index"])
    assert running is not None and running.id == ids[2]
    behind = clocked.submit("index", {"n": 3}, unique="doc-7", on_conflict="replace")
    assert not behind.duplicate, "a running job is not replaced: the new one waits behind it"
    assert clocked.job(ids[2]).status == "CLAIMED"


@pytest.mark.shows("J15")
def test_a_success_of_a_unique_job_writes_nothing_to_its_key(log: penstock.Log) -> None:
    log.submit("a", {}, unique="k")
    table = "penstock_job_unique" if log.store.kind == "sqlite" else "penstock.job_unique"
    with raw(log.store.url) as sql:
        before = sql(f"select * from {table}")
        assert types_claimed(log, ["a"]) == ["a"]
        assert sql(f"select * from {table}") == before
