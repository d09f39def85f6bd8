"""Recorded errors: of ranges, tracebacks once per kind, attempts of all lives, and who did what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock.cli.app import run as run_command
from penstock.core import fingerprint
from penstock.core.lease import Failure, Settlement
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all
from tests.support.raw_sql import raw


def look_up(order: dict[str, Any]) -> Any:
    return order["customer"]


def failure(call: Any, *arguments: Any) -> BaseException:
    try:
        call(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def outcomes(log: penstock.Log, one: Any) -> list[str]:
    return [line.outcome for line in log.delivery("orders", "g", one).history]


@pytest.mark.shows("K47")
def test_an_exception_is_shown_with_its_class_and_its_traceback_everywhere(
    log: penstock.Log, log_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint._seen.clear()
    ids = append_orders(log, 3)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=1))
    lease = log.claim("orders", "g", limit=10, claimed_by="w")
    assert lease is not None
    lease.settle(failed={one: failure(look_up, {}) for one in ids[:2]} | {ids[2]: "just text"})
    shown = log.delivery("orders", "g", ids[0])
    assert (shown.state, shown.error_type, shown.error_code) == ("DEAD", "KeyError", "KeyError")
    assert shown.last_error == "KeyError: 'customer'" and shown.fingerprint
    last = shown.history[-1]
    assert last.traceback is not None and "in look_up" in last.traceback
    assert (last.error_type, last.fingerprint) == ("KeyError", shown.fingerprint)
    text = log.delivery("orders", "g", ids[2])
    assert (text.error_type, text.last_error) == (None, "just text") and text.fingerprint
    with raw(log_url) as sql:
        kinds = sql("select fingerprint, error_type, traceback is not null from penstock.fingerprints")
        assert sorted(kinds) == sorted([(shown.fingerprint, "KeyError", True), (text.fingerprint, None, False)])
        of_view = sql("select error_type, fingerprint from penstock.delivery where event_id = %s", ids[1])
        assert of_view == [("KeyError", shown.fingerprint)]
    monkeypatch.setenv("COLUMNS", "60")
    assert run_command(["show", "orders", str(ids[0]), "--url", log_url]) == 0
    printed = capsys.readouterr().out
    assert "Traceback of KeyError" in printed and "in look_up" in printed
    monkeypatch.setenv("COLUMNS", "120")
    assert run_command(["dead", "orders", "g", "--url", log_url]) == 0
    assert "KeyError: 'customer'" in capsys.readouterr().out


@pytest.mark.shows("K47", "K35")
def test_a_published_or_redriven_delivery_shows_no_old_error(log: penstock.Log) -> None:
    (one,) = append_orders(log, 1)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=1))
    lease = log.claim("orders", "g", limit=10, claimed_by="w")
    assert lease is not None
    lease.settle(failed={one: "boom"})
    log.redrive("orders", "g", event_ids=[one], by="ann")
    shown = log.delivery("orders", "g", one)
    assert (shown.last_error, shown.error_code, shown.fingerprint) == (None, None, None)
    assert (shown.history[-1].outcome, shown.history[-1].by, shown.history[-1].error) == ("redriven", "ann", "boom")
    claim_and_settle_all(log)
    shown = log.delivery("orders", "g", one)
    assert (shown.state, shown.last_error, shown.error_code, shown.fingerprint) == ("PUBLISHED", None, None, None)
    assert outcomes(log, one) == ["claimed", "dead", "redriven", "claimed", "published"]
    assert (shown.attempts, shown.total_attempts) == (1, 2)


@pytest.mark.shows("K47", "K35")
def test_an_unavailable_or_expired_range_leaves_its_error_and_its_time(
    clocked: penstock.Log, clock: VirtualClock, log_url: str
) -> None:
    ids = append_orders(clocked, 5)
    clocked.create_group("orders", "g", lease_seconds=30)
    lease = clocked.claim("orders", "g", limit=10, claimed_by="w-1")
    assert lease is not None
    clock.advance(31)
    assert clocked.reap() == 1
    message = f"lease_expired: w-1 since {lease.row.claimed_at.isoformat()}"
    for one in ids:
        shown = clocked.delivery("orders", "g", one)
        assert (shown.state, shown.last_error, shown.error_code) == ("PENDING", message, "lease_expired")
        assert shown.updated_at == clock.now(), "the time must be that of the release, not of the append"
        line = shown.history[-1]
        assert (line.outcome, line.error, line.error_code, line.lease) == (
            "expired",
            message,
            "lease_expired",
            lease.id,
        )
        assert line.fingerprint == shown.fingerprint is not None
    clock.advance(1)
    for _ in ids:
        again = clocked.claim("orders", "g", limit=10, claimed_by="w-2")
        assert again is not None and again.row.low is not None
        down = fingerprint.of_text("Unavailable", "the mail server is down")
        again.apply(Settlement(upto=again.row.low, unavailable=down))
        shown = clocked.delivery("orders", "g", again.events[0].event_id)
        assert (shown.last_error, shown.error_code) == ("the mail server is down", "Unavailable")
        line = shown.history[-1]
        assert (line.outcome, line.error, line.by) == ("released", "the mail server is down", "w-2")
        clock.advance(3600)
    with raw(log_url) as sql:
        assert sql("select count(*) from penstock.attempt_log") == [(0,)], "a row was written per event"


@pytest.mark.shows("K47")
def test_the_error_of_a_range_stays_with_an_event_that_gets_a_row(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.create_group("orders", "g", ordering="key", lanes=1, lease_seconds=30)
    ids = [log.append("orders", {}, type="t", ordering_key="a").event_id for _ in range(3)]
    assert log.claim("orders", "g", claimed_by="w") is not None
    clock.advance(31)
    log.reap()
    later = clock.now() + timedelta(hours=1)
    log.reschedule("orders", "g", event_ids=[ids[1]], available_at=later)  # holds the third back
    assert len(claim_and_settle_all(log)) == 1
    found = log.deliveries("orders", "g", state="PENDING")
    assert [one.reason for one in found] == ["rescheduled", "blocked"]
    for one in found:
        assert one.error_code == "lease_expired" and one.fingerprint is not None
        assert one.last_error is not None and one.last_error.startswith("lease_expired: w since")


@pytest.mark.shows("K47")
@pytest.mark.parametrize("ordering", [None, "key"])
def test_max_age_ends_an_event_under_unavailable(
    clocked: penstock.Log, clock: VirtualClock, ordering: str | None
) -> None:
    old = append_orders(clocked, 3, ordering_key="a")
    clock.advance(100)
    young = append_orders(clocked, 2, ordering_key="a")
    retry = penstock.Retry(max_age_seconds=60)
    clocked.create_group("orders", "g", retry=retry, ordering=ordering, lanes=1)
    down = fingerprint.of_text("Unavailable", "down")
    lease = clocked.claim("orders", "g", limit=10, claimed_by="w")
    assert lease is not None and len(lease.events) == 5 and lease.row.low is not None
    answer = lease.apply(Settlement(upto=lease.row.low, unavailable=down))
    assert (answer.published, answer.dead, answer.released) == (0, 3, 2)
    for one in old:
        shown = clocked.delivery("orders", "g", one)
        assert (shown.state, shown.error_code) == ("DEAD", "too_old")
        assert outcomes(clocked, one) == ["claimed", "dead"]
    assert {clocked.delivery("orders", "g", one).state for one in young} == {"PENDING"}
    for _ in young:  # an open circuit probes with one event at a time
        clock.advance(3600)
        lease = clocked.claim("orders", "g", limit=10, claimed_by="w")
        assert lease is not None and lease.is_range
        assert lease.apply(Settlement(upto=lease.row.low, unavailable=down)).dead == 1
    assert [one.state for one in clocked.deliveries("orders", "g")] == ["DEAD"] * 5


@pytest.mark.shows("K47")
def test_max_age_ends_a_retry_under_unavailable(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 2)
    clocked.create_group("orders", "g", retry=penstock.Retry(max_age_seconds=60, base_seconds=1, jitter=0))
    lease = clocked.claim("orders", "g", limit=10, claimed_by="w")
    assert lease is not None
    lease.settle(failed={one: "once" for one in ids})
    clock.advance(61)
    lease = clocked.claim("orders", "g", limit=10, claimed_by="w")
    assert lease is not None and not lease.is_range
    offsets = frozenset(lease.events.offsets)
    down = fingerprint.of_text("Unavailable", "down")
    assert lease.apply(Settlement(released=offsets, unavailable=down)).dead == 2


@pytest.mark.shows("K46", "K24")
def test_total_attempts_never_decrease_and_replays_have_numbers_of_their_own(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    ids = append_orders(clocked, 4)
    clocked.create_group("orders", "g", retry=penstock.Retry(max_attempts=1))
    seen: dict[Any, list[int]] = {one: [] for one in ids}
    numbers: dict[Any, list[int]] = {one: [] for one in ids}

    def life() -> None:
        while lease := clocked.claim("orders", "g", limit=10, claimed_by="w"):
            clock.advance(1)
            for event in lease.events:
                seen[event.event_id].append(event.total_attempts)
                numbers[event.event_id].append(event.replays)
            lease.settle(failed={ids[1]: "no"} if ids[1] in {e.event_id for e in lease.events} else None)

    life()
    clocked.replay("orders", "g", event_ids=[ids[0]], by="ann")
    life()
    clocked.rewind("orders", "g", to="beginning", by="ann")
    life()
    clocked.redrive("orders", "g", all=True, by="ann")
    clocked.replay("orders", "g", event_ids=[ids[0], ids[2]], by="ann")
    life()
    clocked.rewind("orders", "g", to="beginning", by="ann")
    life()
    assert seen == {ids[0]: [1, 2, 3, 4, 5], ids[1]: [1, 2, 3, 4], ids[2]: [1, 2, 3, 4], ids[3]: [1, 2, 3]}
    assert [one.total_attempts for one in clocked.deliveries("orders", "g")] == [5, 4, 4, 3]
    for one in ids:
        lives = numbers[one] if one != ids[1] else sorted({*numbers[one]})
        assert lives == sorted({*lives}), "an idempotency key was used twice"


@pytest.mark.shows("K23")
def test_the_dead_letter_query_of_page_002_runs_with_its_own_names(log: penstock.Log, log_url: str) -> None:
    ids = append_orders(log, 3)
    log.create_group("orders", "fraud-screening", retry=penstock.Retry(max_attempts=1))
    lease = log.claim("orders", "fraud-screening", limit=10, claimed_by="w")
    assert lease is not None
    lease.settle(failed={ids[1]: "boom"})
    page = """SELECT e.payload, d.attempts, d.last_error, d.updated_at
FROM vulkan.deliveries d
JOIN vulkan.events e ON e."offset" = d.event_offset
WHERE d.consumer_group = 'fraud-screening' AND d.status = 'dead'
ORDER BY d.updated_at DESC;"""
    ours = page.replace("vulkan.deliveries", "penstock.vulkan_deliveries").replace("vulkan.events", "penstock.events")
    with raw(log_url) as sql:
        ((payload, attempts, error, _),) = sql(ours)
        assert (bytes(payload), attempts, error) == (b'{"n":1}', 1, "boom")
        found = sql("select status, count(*) from penstock.vulkan_deliveries group by status order by status")
        assert found == [("dead", 1), ("done", 2)]


@pytest.mark.shows("K35")
def test_the_history_of_one_event_reads_only_that_event(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    log = postgres_log
    ids = append_orders(log, 20_000)
    log.create_group("orders", "g")
    claim_and_settle_all(log, limit=10)
    with raw(postgres_log_url) as sql:
        sql("vacuum analyze")
        for where in (f"event_id = '{ids[777]}'", "group_name = 'g' and \"offset\" = 778"):
            plan = "\n".join(
                row[0] for row in sql(f"explain (analyze, buffers) select * from penstock.history where {where}")
            )
            assert "Seq Scan on leases" not in plan and "Seq Scan on events" not in plan, plan
            assert "leases_range" in plan, plan
            touched = sum(
                int(part.split("=")[1].split()[0])
                for part in plan.split("\n")[1:]
                if "shared hit=" in part
                for part in [part[part.index("shared hit=") :]][:1]
            )
            assert touched < 2_000, plan


@pytest.mark.shows("K47")
def test_every_failure_has_a_kind_whoever_creates_it(log: penstock.Log, log_url: str) -> None:
    append_orders(log, 3)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=10, claimed_by="w")
    assert lease is not None
    first, second, third = lease.events.offsets
    why = Failure("SparkError", "task 7 failed", error_type="org.Spark")
    lease.apply(Settlement(failed={first: why}, dead={second: why}, upto=second, unavailable=Failure("down", "down")))
    shown = log.deliveries("orders", "g")
    assert all(one.fingerprint for one in shown) and shown[0].fingerprint == shown[1].fingerprint
    assert [one.error_type for one in shown] == ["org.Spark", "org.Spark", None]
    with raw(log_url) as sql:
        assert len(sql("select 1 from penstock.fingerprints")) == 2
    assert third
