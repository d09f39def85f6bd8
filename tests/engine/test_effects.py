"""Effects through the context commit with the settle or not at all, and only for successful events."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.engine.local.engine import LocalEngine
from penstock.testing import VirtualClock
from tests.support.children import handlers
from tests.support.declarations import subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.local_engine import run_local_until_drained
from tests.support.notes import read_notes
from tests.support.raw_sql import raw

ISOLATION = pytest.mark.parametrize("isolation", ["process", "inline"])


def append_acts(log: penstock.Log, *what: str | None, key: str | None = "k") -> None:
    for do in what:
        log.append("orders", {"do": do}, type="t", ordering_key=key)


@ISOLATION
@pytest.mark.shows("K27")
@pytest.mark.parametrize("bad", ["bad_sql", "rows"])
def test_an_sql_error_of_one_event_fails_that_event_only(
    log: penstock.Log, log_url: str, isolation: str, bad: str
) -> None:
    create_done_table(log_url)
    append_acts(log, None, None)
    append_acts(log, bad, key="other")
    append_acts(log, None)
    run_local_until_drained(log, subscription(handlers.counting, isolation=isolation))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.error_code, dead.failures) == (3, "effect_failed", 2)
    assert sorted(done_offsets(log_url)) == [1, 2, 4]
    assert log.state("orders", "g", "k")["seen"] == 3
    assert log.state("orders", "g", "other") == {}
    assert sorted(event.json()["offset"] for event in log.read("seen")) == [1, 2, 4]


@ISOLATION
@pytest.mark.shows("K27")
def test_later_events_of_a_key_run_again_without_the_failed_one(
    log: penstock.Log, log_url: str, isolation: str
) -> None:
    """The later event's state was computed from the failed one's, so it is computed again without it."""
    create_done_table(log_url)
    append_acts(log, None, "bad_sql", None)
    run_local_until_drained(log, subscription(handlers.counting, isolation=isolation))
    assert sorted(done_offsets(log_url)) == [1, 3]
    assert log.state("orders", "g", "k")["seen"] == 2
    assert [event.json() for event in log.read("seen")] == [{"offset": 1, "seen": 1}, {"offset": 3, "seen": 2}]


@ISOLATION
@pytest.mark.shows("K27", "K03")
def test_an_emitted_id_that_is_taken_fails_its_event_only(log: penstock.Log, log_url: str, isolation: str) -> None:
    create_done_table(log_url)
    log.append("seen", {"first": True}, type="event.seen", event_id=penstock.event_id("taken"))
    append_acts(log, None, "taken_id", None)
    run_local_until_drained(log, subscription(handlers.counting, isolation=isolation))
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.error_code) == (3, "duplicate_mismatch")
    assert sorted(done_offsets(log_url)) == [2, 4] and log.state("orders", "g", "k")["seen"] == 2


@ISOLATION
@pytest.mark.shows("K27")
def test_changing_a_value_read_from_state_does_not_change_the_state(log: penstock.Log, isolation: str) -> None:
    append_acts(log, None, None)
    run_local_until_drained(log, subscription(handlers.mutating, isolation=isolation))
    assert log.state("orders", "g", "k") == {"mine": [1]}


@pytest.mark.shows("K27")
def test_state_expires_after_its_ttl(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_acts(clocked, None)
    run_local_until_drained(clocked, subscription(handlers.forgetting, isolation="inline"))
    assert clocked.state("orders", "g", "k") == {"short": 1, "long": 1}
    clock.advance(60)
    assert clocked.state("orders", "g", "k") == {"long": 1}


@pytest.mark.shows("K27")
def test_state_needs_a_key_and_a_group_that_keeps_it(log: penstock.Log, log_url: str) -> None:
    create_done_table(log_url)
    append_acts(log, None, key=None)
    append_acts(log, None)
    run_local_until_drained(
        log, subscription(handlers.counting), subscription(handlers.counting, group="unkeyed", keyed=False)
    )
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.error_code) == (1, "state_needs_key")
    assert {one.error_code for one in log.deliveries("orders", "unkeyed", state="DEAD")} == {"state_needs_key"}


@pytest.mark.shows("K27")
def test_two_engines_on_one_key_lose_no_update(log_url: str) -> None:
    create_done_table(log_url)
    with penstock.open(log_url) as one, penstock.open(log_url) as two:
        one.append_many("orders", [{"payload": {}, "type": "t", "ordering_key": f"k{n % 3}"} for n in range(900)])
        engines = [
            LocalEngine(log, [subscription(handlers.counting, batch_size=50)], until_drained=True, name=f"e{number}")
            for number, log in enumerate((one, two))
        ]
        for engine in engines:
            engine.start()
        assert all(engine.wait(60) for engine in engines)
        assert [one.state("orders", "g", f"k{n}")["seen"] for n in range(3)] == [300] * 3
        assert sorted(done_offsets(log_url)) == list(range(1, 901))
        assert sum(engine.snapshot()["orders/g"]["published"] for engine in engines) == 900


@pytest.mark.shows("K27")
def test_a_replay_has_its_own_idempotency_key_and_a_later_token(log: penstock.Log, notes: Path) -> None:
    event = log.append("orders", {}, type="t", ordering_key="k")
    run_local_until_drained(log, subscription(handlers.keyed_by_id))
    log.replay("orders", "g", all=True)
    run_local_until_drained(log, subscription(handlers.keyed_by_id))
    (first, token), (second, later) = read_notes(notes)
    assert (first, second) == (f"g:{event.event_id}", f"g:{event.event_id}:1") and int(later) > int(token)


@pytest.mark.shows("K15", "K27")
def test_a_lease_that_was_ended_by_a_rewind_leaves_no_effect(log: penstock.Log, log_url: str) -> None:
    """The group is rewound while its handler works: only the effects of the new lease happen."""
    create_done_table(log_url)
    append_acts(log, None, None)
    rewound = []

    def rewinding(event: penstock.Event, ctx: penstock.Context) -> None:
        handlers.counting(event, ctx)
        if not rewound:
            rewound.append(log.rewind("orders", "g", to="beginning"))

    engine = run_local_until_drained(log, subscription(rewinding, isolation="inline"))
    assert engine.snapshot()["orders/g"]["lost"] == 1
    assert sorted(done_offsets(log_url)) == [1, 2] and log.state("orders", "g", "k")["seen"] == 2


@pytest.mark.shows("K27")
def test_until_drained_waits_for_groups_that_feed_each_other(log: penstock.Log, log_url: str) -> None:
    create_done_table(log_url)
    append_acts(log, *[None] * 50)
    run_local_until_drained(
        log, subscription(handlers.counting), subscription(handlers.plain, stream="seen", group="next")
    )
    with raw(log_url) as sql:
        assert sql("select count(*) from penstock.delivery where group_name = 'next' and state = 'PUBLISHED'") == [
            (50,)
        ]
