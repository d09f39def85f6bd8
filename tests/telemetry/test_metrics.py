"""What is counted of the seam's events, and what `GET /metrics` says of a log."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.ingested import Ingested
from penstock.core.lease import Settled
from penstock.core.observe import (
    CircuitOpened,
    Claimed,
    EntriesIngested,
    LeaseEnded,
    LeasesExpired,
    Observed,
    Operated,
    ProcessesDied,
    RunBegan,
    RunEnded,
    RunProgressed,
    StoreAway,
    Timing,
    everyone,
)
from penstock.declare.load import load_object
from penstock.telemetry.families import Family, Histogram
from penstock.telemetry.log_metrics import LogMetrics
from penstock.telemetry.metrics import BOUNDS, Metrics
from tests.support.http_service import Service
from tests.support.local_engine import run_local_until_drained

FRAUD = ("orders", "fraud")


def values(families: list[Family]) -> dict[tuple[str, ...], Any]:
    """All values, by the metric's name and its labels."""
    return {(one.about.name, *key): value for one in families for key, value in one.values.items()}


def counted(*events: Observed, most: int | None = None) -> dict[tuple[str, ...], Any]:
    """What metrics count of these events, zeros aside."""
    metrics = Metrics(most)
    for event in events:
        metrics(event)
    return {key: value for key, value in values(metrics.families()).items() if value}


@pytest.mark.shows("O03")
def test_a_lease_is_counted_by_outcome_and_timed() -> None:
    timing = Timing(0.0, 0.002, 0.3, 400.0)
    found = counted(
        Claimed("orders/fraud", 7, 10, 0.002),
        LeaseEnded("orders/fraud", 7, Settled(5, 3, 1, 1), None, timing),
        LeasesExpired("orders/fraud", 2, Settled(0, 1, 0, 4)),
    )
    times = {name[0]: found.pop(name) for name in [*found] if isinstance(found[name], Histogram)}
    assert {name[0].removeprefix("penstock_"): value for name, value in found.items()} == {
        "leases_claimed": 1,
        "claimed": 10,
        "leases_ended": 1,
        "leases_expired": 2,
        "published": 5,
        "failed": 5,
        "retried": 4,
        "dead": 1,
        "released": 5,
    }
    assert all(name[1:] == FRAUD for name in found)
    claim, handle, settle = (times[f"penstock_{one}_seconds"] for one in ("claim", "handle", "settle"))
    assert claim.counts == [0, *[1] * len(BOUNDS)] and handle.counts[BOUNDS.index(0.5)] == 1
    assert settle.counts == [*[0] * len(BOUNDS), 1] and settle.sum == 400.0, "above the last bound"


def test_the_counts_of_spark_come_from_the_rows_of_the_run() -> None:
    def rows(published: int) -> RunProgressed:
        return RunProgressed({"orders/fraud": {"leases": 2, "published": published, "failed": 1, "dead": 0}})

    driver = LeaseEnded("orders/fraud", 7, Settled(5, 0, 0, 0))  # of a pipeline: its rows are counted already
    found = counted(RunBegan("spark", ["orders/fraud"], 1), driver, rows(5), rows(9), rows(9))
    assert (found["penstock_published", *FRAUD], found["penstock_retried", *FRAUD]) == (9, 1)
    again = counted(RunBegan("local", ["orders/fraud"], 1), driver, rows(5), RunEnded("stopped"))
    assert again["penstock_published", *FRAUD] == 5


def test_labels_are_streams_and_groups_and_their_number_is_bounded() -> None:
    many = [Claimed(f"orders/g{n}", n, 1) for n in range(5)]
    found = counted(*many, Claimed("jobs:default:mail", 1, 1), StoreAway("kafka > clicks", OSError()), most=2)
    assert {key[1:]: value for key, value in found.items() if key[0] == "penstock_claimed"} == {
        ("orders", "g0"): 1,
        ("orders", "g1"): 1,
        ("other", "other"): 4,
    }
    found = counted(
        LeasesExpired("jobs:default:7:mail/workers", 1, Settled(0, 0, 0, 1)),
        Claimed("jobs:default:mail", 1, 1),
        StoreAway("kafka://me:secret@host > clicks", OSError("no")),
        ProcessesDied("orders/fraud", 2),
        CircuitOpened("orders/mail", "refused"),
        Operated("redrive", "orders", "fraud", 3, "me"),
        EntriesIngested("nats > clicks", Ingested(3, 1, 1, 1), 2),
    )
    assert {key[1:3] for key in found} == {
        ("jobs:default:mail", "workers"),
        ("clicks", ""),
        ("clicks",),
        FRAUD,
        ("orders", "mail"),
    }
    assert found["penstock_actions_moved", *FRAUD, "redrive"] == 3 and "secret" not in repr(found)


def test_what_a_run_serves_is_counted_from_zero() -> None:
    metrics = Metrics()
    metrics(RunBegan("local", ["orders/fraud", "nothing > clicks"], 1))
    found = values(metrics.families())
    assert found["penstock_dead", *FRAUD] == 0 and found["penstock_ingested", "clicks"] == 0


@pytest.mark.shows("O03")
def test_an_engine_is_counted_as_its_own_counters_say(log: penstock.Log) -> None:
    app = penstock.App(name="shop")

    @app.subscribe("orders", group="fraud", isolation="inline", retry=penstock.Retry(max_attempts=2, base_seconds=0))
    def screen(event: penstock.Event) -> None:
        if event.json() % 10 == 0:
            raise ValueError("no")

    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(30)])
    with Metrics().counting() as metrics:
        engine = run_local_until_drained(log, *app.chosen())
    own, found = engine.snapshot()["orders/fraud"], values(metrics.families())
    names = {"leases": "leases_claimed", "published": "published", "failed": "retried", "dead": "dead"}
    assert {name: found[f"penstock_{metric}", *FRAUD] for name, metric in names.items()} == {
        name: own[name] for name in names
    }
    assert (own["published"], own["dead"], found["penstock_failed", *FRAUD]) == (27, 3, 6)
    assert found["penstock_handle_seconds", *FRAUD].counts[-1] == own["leases"]
    everyone.emit(Claimed("orders/fraud", 1, 1))
    assert values(metrics.families())["penstock_leases_claimed", *FRAUD] == own["leases"], "it has stopped counting"


# --- the whole log ---------------------------------------------------------------------------------------------------


def trouble(log: penstock.Log) -> None:
    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(5)])
    log.create_group("orders", "fraud")
    log.create_group("orders", "mail")
    log.pause("orders", "mail")
    lease = log.claim("orders", "fraud", limit=3, claimed_by="w")
    assert lease is not None
    lease.settle(dead={lease.events[0]: "no"})
    log.submit("send", {}, priority=3)
    log.submit("send", {}, priority=4)
    log.claim_jobs("w", ["send"], limit=2)


@pytest.mark.shows("O03")
def test_the_log_says_what_is_true_of_every_group(log: penstock.Log) -> None:
    trouble(log)
    found = values(LogMetrics(log).families())
    states = {key[3]: value for key, value in found.items() if key[:3] == ("penstock_group_deliveries", *FRAUD)}
    assert states == {"pending": 2, "claimed": 0, "published": 2, "dead": 1}
    assert found["penstock_group_lag", *FRAUD] == 2 and found["penstock_group_oldest_seconds", *FRAUD] > 0
    assert (found["penstock_group_paused", "orders", "mail"], found["penstock_group_paused", *FRAUD]) == (1, 0)
    assert found["penstock_group_deliveries", "jobs:default:send", "workers", "claimed"] == 2, "priorities are one"
    assert found["penstock_jobs", "default", "send", "in_progress"] == 2
    assert found["penstock_stream_events", "orders"] == 5 and found["penstock_log_up",] == 1
    assert found["penstock_schema_version",] >= 27
    assert found["penstock_horizon_offset",] == found["penstock_last_offset",] == 7
    assert found["penstock_horizon_held_seconds", "active"] == 0 and found["penstock_runs", "local", "lost"] == 0


def test_who_holds_the_horizon_is_told_by_kind(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_log_url) as connection:
        postgres_log.append("orders", {}, type="t", connection=connection)
        found = postgres_log.vitals()
        assert found.held_seconds["idle in transaction"] > 0 and found.horizon < found.last_offset
        assert found.held_seconds["prepared"] == 0
        connection.rollback()
    assert set(postgres_log.vitals().held_seconds.values()) == {0.0}


def test_however_many_ask_it_is_computed_once_in_a_while(log: penstock.Log) -> None:
    now = [100.0]
    metrics = LogMetrics(log, seconds=5.0, clock=lambda: now[0])
    threads = [threading.Thread(target=metrics.families) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert metrics.computed == 1
    now[0] += 4.9
    metrics.families()
    assert metrics.computed == 1
    now[0] += 0.2
    metrics.families()
    assert metrics.computed == 2


@pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
def test_groups_beyond_the_limit_are_one(log: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.telemetry.families.LABEL_SETS", 3)
    monkeypatch.setattr("penstock.telemetry.families.Bounded.__init__.__defaults__", (3,))
    log.append("orders", {}, type="t")
    for n in range(6):
        log.create_group("orders", f"g{n}")
    log.pause("orders", "g5")
    found = values(LogMetrics(log).families())
    assert {key[1:]: value for key, value in found.items() if key[0] == "penstock_group_lag"} == {
        **{("orders", f"g{n}"): 1 for n in range(3)},
        ("other", "other"): 3,
    }
    assert found["penstock_group_paused", "other", "other"] == 1


@pytest.mark.shows("O03", "X09")
def test_a_token_sees_the_metrics_of_its_streams(service: Service) -> None:
    trouble(service.log)
    service.log.append("secret-stream", {}, type="t")
    everything = service.http(service.token("read")).get("/metrics")
    assert everything.status_code == 200 and everything.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'penstock_group_lag{group="fraud",stream="orders"} 2.0' in everything.text
    assert 'penstock_appended_total{stream="secret-stream"} 1.0' in everything.text
    assert 'penstock_stream_events{stream="secret-stream"} 1.0' in everything.text
    some = service.http(service.token("read:orders")).get("/metrics").text
    assert 'penstock_group_lag{group="fraud",stream="orders"} 2.0' in some and "penstock_build_info{" in some
    assert "secret-stream" not in some and "penstock_runs{" not in some and "jobs:" not in some
    assert service.http(service.token("append")).get("/metrics").status_code == 403
    assert service.http().get("/metrics").status_code == 401
    assert service.app.state.metrics.log.computed == 1


def test_leases_over_http_are_counted(service: Service) -> None:
    log = service.log
    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(4)])
    log.create_group("orders", "fraud")
    client = service.client()
    lease = client.claim("orders", "fraud", limit=3, claimed_by="w")
    assert lease is not None
    lease.settle(dead={lease.events[0].event_id: "no"})
    other = client.claim("orders", "fraud", claimed_by="w")
    assert other is not None
    other.release()
    text = service.http(service.token("read")).get("/metrics").text
    for line in (
        "leases_claimed_total{%s} 2.0",
        "published_total{%s} 2.0",
        "dead_total{%s} 1.0",
        "released_total{%s} 1.0",
    ):
        assert "penstock_" + line % 'group="fraud",stream="orders"' in text


POOLED = """
import penstock
app = penstock.App(name="shop")

@app.subscribe("orders", group="fraud", isolation="inline", retry=penstock.Retry(max_attempts=1))
def screen(event):
    if event.json() == 3:
        raise ValueError("no")
"""


@pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
def test_what_the_processes_of_a_pool_do_is_counted_in_the_foreground(
    log: penstock.Log, log_url: str, tmp_path: Path
) -> None:
    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(10)])
    (tmp_path / "shop.py").write_text(POOLED)
    app = load_object(str(tmp_path / "shop.py"), penstock.App)
    app.url = log_url
    with Metrics().counting() as metrics:
        app.run("local", until_drained=True, processes=2)
    found = values(metrics.families())
    assert (found["penstock_published", *FRAUD], found["penstock_dead", *FRAUD]) == (9, 1)
    assert found["penstock_handle_seconds", *FRAUD].counts[-1] == found["penstock_leases_ended", *FRAUD] > 0
    assert found["penstock_runs_began",] == found["penstock_runs_ended",] == 1
