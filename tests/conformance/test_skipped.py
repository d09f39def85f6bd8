"""`skipped`: an event that needed no handling is PUBLISHED, with the reason."""

from __future__ import annotations

import pytest

import penstock
from tests.support.log_steps import append_orders, claim_lease, count_by_state

pytestmark = pytest.mark.shows("R10")


def outcomes(log: penstock.Log) -> list[tuple[str, str | None, str | None]]:
    return [(str(one.state), one.reason, one.last_error) for one in log.deliveries("orders", "g")]


def test_a_skipped_event_of_a_range_is_published_with_its_reason(log: penstock.Log) -> None:
    ids = append_orders(log, 3)
    log.create_group("orders", "g", lanes=1)
    settled = claim_lease(log).settle(skipped={ids[1]: "no topic"})
    assert (settled.published, settled.failed, settled.released) == (3, 0, 0)
    assert outcomes(log) == [
        ("PUBLISHED", None, None),
        ("PUBLISHED", "skipped: no topic", None),
        ("PUBLISHED", None, None),
    ]
    found = log.delivery("orders", "g", ids[1])
    assert found.published_at is not None and found.attempts == 1
    assert [(one.outcome, one.error, one.error_code) for one in found.history] == [
        ("claimed", None, None),
        ("published", "no topic", "skipped"),
    ]
    assert log.claim("orders", "g", limit=10, claimed_by="w") is None


def test_a_skipped_row_is_published_and_forgets_its_error(log: penstock.Log) -> None:
    (one,) = append_orders(log, 1)
    log.create_group("orders", "g", lanes=1, retry=penstock.Retry(base_seconds=0, jitter=0))
    claim_lease(log).settle(failed={one: "not yet"})
    settled = claim_lease(log).settle(skipped={one: "too late"})
    assert (settled.published, settled.failed) == (1, 0)
    assert outcomes(log) == [("PUBLISHED", "skipped: too late", None)]
    assert log.delivery("orders", "g", one).error_code is None
    steps = [step.outcome for step in log.delivery("orders", "g", one).history]
    assert steps == ["claimed", "failed", "claimed", "published"]


def test_a_skipped_event_can_be_replayed_and_then_has_no_reason(log: penstock.Log) -> None:
    (one,) = append_orders(log, 1)
    log.create_group("orders", "g", lanes=1)
    claim_lease(log).settle(skipped={one: "no topic"})
    log.replay("orders", "g", event_ids=[one])
    claim_lease(log).settle()
    assert outcomes(log) == [("PUBLISHED", None, None)]


def test_a_skipped_event_behind_a_failed_one_of_its_key_waits(log: penstock.Log) -> None:
    ids = append_orders(log, 2, ordering_key="k")
    log.create_group("orders", "g", ordering="key", lanes=1)
    claim_lease(log).settle(failed={ids[0]: "boom"}, skipped={ids[1]: "no topic"})
    assert count_by_state(log) == {"pending": 2}


def test_a_skipped_event_before_a_released_end_is_done(log: penstock.Log) -> None:
    ids = append_orders(log, 4)
    log.create_group("orders", "g", lanes=1)
    settled = claim_lease(log).settle(skipped={ids[1]: "no"}, released=ids[2:])
    assert (settled.published, settled.released) == (2, 2)
    assert [event.event_id for event in claim_lease(log).events] == ids[2:]


def test_one_outcome_for_an_event_and_the_same_settle_twice(log: penstock.Log) -> None:
    (one,) = append_orders(log, 1)
    log.create_group("orders", "g", lanes=1)
    lease = claim_lease(log)
    with pytest.raises(penstock.NotInLease):
        lease.settle(skipped={one: "no"}, failed={one: "boom"})
    lease.settle(skipped={one: "no"})
    assert lease.settle(skipped={one: "no"}).published == 1
    with pytest.raises(penstock.SettleMismatch):
        lease.settle(skipped={one: "other"})
