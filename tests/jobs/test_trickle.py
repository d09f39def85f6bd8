"""Few jobs now and then: a worker claims each in one statement, and asks for more only when there may be some."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock.core.lease import Idle
from penstock.core.limits import READ_WITH_CLAIM
from penstock.log.jobs.wanted import Wanted
from penstock.stores.postgres.store import PostgresStore

TYPE, MOST = "a", 50_000


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What PostgreSQL is asked from now on, by block."""
    asked: list[str] = []
    only, transaction = PostgresStore.only, PostgresStore.transaction

    def alone(self: PostgresStore, block: str, **params: Any) -> Any:
        asked.append(block)
        return only(self, block, **params)

    def more(self: PostgresStore, *, write: bool = True) -> Any:
        asked.append("transaction")
        return transaction(self, write=write)

    monkeypatch.setattr(PostgresStore, "only", alone)
    monkeypatch.setattr(PostgresStore, "transaction", more)
    return asked


def take(log: penstock.Log, wanted: Wanted) -> list[int] | None:
    """Claim as the engine does, settle, and return the payloads; None if there was nothing."""
    found = log.job_claims.lease(wanted, MOST, "w", None)
    if isinstance(found, Idle):
        return None
    numbers = [event.json() for lease in found for event in lease.events]
    for lease in found:
        lease.settle()
    return numbers


@pytest.mark.shows("J02", "J10")
def test_a_trickle_is_claimed_in_one_statement_each(postgres_log: penstock.Log, statements: list[str]) -> None:
    log, wanted = postgres_log, Wanted("default", [TYPE])
    log.submit(TYPE, 0)
    assert take(log, wanted) == [0]
    assert take(log, wanted) is None
    for n in range(1, 4):
        log.submit(TYPE, n)
        statements.clear()
        assert take(log, wanted) == [n]
        assert statements == ["jobs.claim_first", "settle.whole"]


@pytest.mark.shows("J02")
def test_a_backlog_after_a_trickle_is_claimed_in_large_leases(postgres_log: penstock.Log) -> None:
    log, wanted = postgres_log, Wanted("default", [TYPE])
    log.submit(TYPE, 0)
    assert take(log, wanted) == [0] and take(log, wanted) is None
    log.submit_many(TYPE, [{"payload": n} for n in range(1, 3 * READ_WITH_CLAIM)])
    sizes = []
    while (taken := take(log, wanted)) is not None:
        sizes.append(len(taken))
    assert sizes == [READ_WITH_CLAIM, 2 * READ_WITH_CLAIM - 1]


@pytest.mark.shows("J02", "J10")
@pytest.mark.parametrize("other", ["priority", "delayed", "failed"])
def test_a_lease_that_took_all_says_so_only_if_it_did(postgres_log: penstock.Log, other: str) -> None:
    """`rest` is what the next claim would say: nothing up to there. It is not said where something else may wait."""
    log, wanted = postgres_log, Wanted("default", [TYPE])
    log.submit(TYPE, 0)
    assert take(log, wanted) == [0] and take(log, wanted) is None
    log.submit(TYPE, 1)
    assert take(log, wanted) == [1] and wanted.rest is not None and wanted.rest.horizon == log.end()
    if other == "priority":
        log.submit(TYPE, 3, priority=1)
        log.submit(TYPE, 2, priority=9)
        assert take(log, wanted) == [2] and wanted.rest is None
        assert take(log, wanted) == [3]
    elif other == "failed":
        log.submit(TYPE, 9)
        held = log.claim_job("w", [TYPE])
        assert held is not None
        log.fail_job(held.id, "w", token=held.token, error="no", retry_in=0)
        assert take(log, wanted) == [9] and wanted.rest is None
    else:
        log.submit_many(TYPE, [{"payload": 4}, {"payload": 5, "available_at": datetime.now(UTC) + timedelta(days=1)}])
        assert take(log, wanted) == [4] and wanted.rest is None


@pytest.mark.shows("J02")
def test_the_first_job_of_another_priority_is_found_though_one_stream_is_known(log: penstock.Log) -> None:
    wanted = Wanted("default", [TYPE])
    for n, priority in enumerate([0, 0, 5, 0, 9, 0]):
        log.submit(TYPE, n, priority=priority)
        log.append_many("orders", [{"payload": {}, "type": "t"}] * 150)
        assert take(log, wanted) == [n]
        assert take(log, wanted) is None


@pytest.mark.shows("J02")
def test_a_job_of_a_higher_priority_is_first_though_it_came_after_many_others(log: penstock.Log) -> None:
    """They are more than the claim looks through to see whether only the known stream has new ones."""
    wanted = Wanted("default", [TYPE])
    log.submit(TYPE, 0)
    assert take(log, wanted) == [0] and take(log, wanted) is None
    log.submit_many(TYPE, [{"payload": 1} for _ in range(150)])
    log.submit(TYPE, 9, priority=9)
    assert take(log, wanted) == [9]
