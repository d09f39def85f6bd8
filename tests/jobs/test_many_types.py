"""Many types: a worker remembers which of their streams have had a job, and misses none that get their first."""

from __future__ import annotations

import pytest

import penstock
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw

TYPES = [f"type-{n}" for n in range(12)]


def claimed(log: penstock.Log) -> object:
    job = log.claim_job("w", TYPES)
    if job is None:
        return None
    log.complete_job(job.id, "w", token=job.token)
    return job.json()


@pytest.mark.shows("J02")
@pytest.mark.parametrize("others", [0, 3, 500])
def test_the_first_job_of_a_type_or_priority_is_found(log: penstock.Log, make_log: MakeLog, others: int) -> None:
    producer = make_log()
    producer.submit("type-0", 0)
    assert claimed(log) == 0
    found: list[object] = []
    for n, (kind, priority) in enumerate([("type-1", 0), ("type-0", 9), ("type-11", 5), ("unwanted", 9)]):
        producer.submit("type-0", "waits")
        if others:
            producer.append_many("orders", [{"payload": {}, "type": "t"}] * others)
        producer.submit(kind, n, priority=priority)
        found.append(claimed(log))
    assert found == ["waits", 1, 2, 0]


@pytest.mark.shows("J02")
def test_a_stream_that_somebody_else_has_drained_is_remembered(log: penstock.Log, make_log: MakeLog) -> None:
    other = make_log()
    assert claimed(log) is None
    other.submit("type-3", 1)
    assert claimed(other) == 1 and claimed(log) is None
    held = other.submit("type-3", 2)
    assert other.claim_job("dies", TYPES, lease_seconds=0.01) is not None
    while (job := log.claim_job("w", TYPES)) is None:  # until it has expired
        pass
    assert (job.id, job.attempts) == (held.id, 2)


@pytest.mark.parametrize("seconds", [-1, "30", float("nan"), 10**9])
def test_every_claim_checks_how_long_its_lease_is(log: penstock.Log, seconds: object) -> None:
    for n in range(3):
        log.submit("type-0", n)
    for n in range(3):  # the second claim is one statement, where the store can
        with pytest.raises(penstock.InvalidInput):
            log.claim_job("w", TYPES, lease_seconds=seconds)  # type: ignore[arg-type]
        assert claimed(log) == n


@pytest.mark.shows("J02", "K39")
def test_claims_on_a_server_that_isolates_more(postgres_log_url: str) -> None:
    database = postgres_log_url.rpartition("/")[2]
    with raw(postgres_log_url) as sql:
        sql(f"alter database {database} set default_transaction_isolation to 'serializable'")
    with penstock.open(postgres_log_url) as log, penstock.open(postgres_log_url) as producer:
        for n in range(4):
            producer.submit(TYPES[0], "last")
            producer.submit(TYPES[n + 1], n, priority=n + 1)
            assert [claimed(log), claimed(log), claimed(log)] == [n, "last", None]
