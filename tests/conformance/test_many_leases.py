"""Many open leases of a group: all are known, though claims look at few of them."""

from __future__ import annotations

import random

import psycopg
import pytest

import penstock
from penstock.log.lease import Lease
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders

LEASES = 230


def claimed(log: penstock.Log, count: int, **options: float) -> list[Lease]:
    found = [log.claim("orders", "g", limit=1, claimed_by="w", **options) for _ in range(count)]
    assert None not in found
    return [lease for lease in found if lease is not None]


def counts(log: penstock.Log) -> tuple[int, int, int, int]:
    group = log.stats().groups[0]
    return group.pending, group.claimed, group.published, group.dead


@pytest.mark.shows("K16", "K36")
def test_each_of_many_open_leases_can_expire_be_kept_alive_and_be_settled(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    ids = append_orders(clocked, LEASES + 10)
    clocked.create_group("orders", "g", lease_seconds=30, retry=penstock.Retry(max_attempts=5, base_seconds=0))
    leases = claimed(clocked, LEASES)
    assert counts(clocked) == (10, LEASES, 0, 0)
    random.Random(7).shuffle(leases)
    for lease in leases[:60]:
        lease.settle()
    clock.advance(20)
    for lease in leases[60:120]:
        lease.extend()
    assert counts(clocked) == (10, LEASES - 60, 60, 0)
    clock.advance(15)
    fresh = claimed(clocked, 1)  # takes back what has expired: of the oldest leases, too
    assert fresh[0].events[0].attempts == 2
    assert counts(clocked) == (10 + LEASES - 120 - 1, 61, 60, 0)
    with pytest.raises(penstock.LeaseLost):
        leases[-1].settle()
    for lease in [*leases[60:120], *fresh]:
        lease.settle()
    while (rest := clocked.claim("orders", "g", limit=50, claimed_by="w")) is not None:
        rest.settle()
    assert counts(clocked) == (0, 0, len(ids), 0)


@pytest.mark.shows("K23", "K24", "K25")
def test_operators_know_all_of_many_open_leases(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, LEASES)
    clocked.create_group("orders", "g", lease_seconds=30)
    leases = claimed(clocked, LEASES)
    for one in (ids[0], ids[-1]):
        with pytest.raises(penstock.InFlight):
            clocked.kill("orders", "g", event_ids=[one], reason="no", by="me")
    assert {str(one.state) for one in clocked.deliveries("orders", "g", limit=LEASES)} == {"CLAIMED"}
    clocked.rewind("orders", "g", to="beginning")
    for lease in (leases[0], leases[-1]):
        with pytest.raises(penstock.LeaseLost):
            lease.settle()
    assert counts(clocked) == (LEASES, 0, 0, 0)


@pytest.mark.shows("J16")
def test_many_open_leases_count_against_a_limit(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_orders(clocked, LEASES)
    clocked.create_group("orders", "g", lease_seconds=30)
    leases = claimed(clocked, LEASES - 20)
    clocked.set_group("orders", "g", max_in_flight=LEASES - 18)
    claimed(clocked, 2)
    assert clocked.claim("orders", "g", limit=1, claimed_by="w") is None
    leases[0].settle()
    claimed(clocked, 1)
    assert clocked.claim("orders", "g", limit=1, claimed_by="w") is None


@pytest.mark.shows("K36")
def test_a_new_lease_names_few_of_many(postgres_log_url: str) -> None:
    with penstock.open(postgres_log_url) as log, psycopg.connect(postgres_log_url) as connection:
        append_orders(log, LEASES)
        log.create_group("orders", "g")
        claimed(log, LEASES)
        named = connection.execute("select max(cardinality(open_before)), count(*) from penstock.leases").fetchone()
        assert named is not None and named[0] <= 100 < named[1] == LEASES
