"""Operations and dead letters in bulk over HTTP: plan, start, watch, change, purge, mend."""

from __future__ import annotations

import uuid

import pytest

import penstock
from penstock.errors import PlanOutdated
from tests.support.http_service import Service, is_problem

RETRY = penstock.Retry(max_attempts=1)


def bury(log: penstock.Log, count: int = 5) -> list[uuid.UUID]:
    log.create_group("orders", "g", retry=RETRY)
    ids = [log.append("orders", {"n": n}, type="t").event_id for n in range(count)]
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    lease.settle(dead={one: "KeyError: boom" for one in ids})
    return ids


@pytest.mark.shows("O04", "X09")
def test_an_operation_is_planned_started_and_watched(service: Service) -> None:
    log = service.log
    bury(log)
    http = service.http(service.token("operate", "read", name="ops"))
    what = {"kind": "redrive", "stream": "orders", "group": "g", "error": "KeyError", "canary": 2}
    assert is_problem(http.post("/v1/operations", json=what), 422, "missing_field")
    plan = http.post("/v1/operations", json={**what, "dry_run": True})
    assert plan.status_code == 200 and plan.json()["count"] == 5
    named = {name: plan.json()[name] for name in ("cutoff", "count")}
    stale = http.post("/v1/operations", json={**what, **named, "count": 4})
    assert is_problem(stale, 409, "plan_outdated")
    started = http.post("/v1/operations", json={**what, **named})
    assert started.status_code == 202 and started.headers["Location"] == "/v1/operations/1"
    assert started.json()["by"] == "ops"
    log.run_operations()
    shown = http.get("/v1/operations/1").json()
    assert (shown["moved"], shown["phase"], shown["state"]) == (2, "waiting", "running")
    assert http.post("/v1/operations/1/pause").json()["state"] == "paused"
    assert http.post("/v1/operations/1/resume").json()["state"] == "running"
    assert http.post("/v1/operations/1/abort").json()["state"] == "aborted"
    assert is_problem(http.post("/v1/operations/1/resume"), 409, "operation_ended")
    assert is_problem(http.get("/v1/operations/7"), 404, "unknown_operation")
    odd = {"kind": "rewind", "stream": "orders", "group": "g", "to": 0, "canary": 1, "dry_run": True}
    assert is_problem(http.post("/v1/operations", json=odd), 422, "operation_option")
    for _ in range(2):
        log.operation("purge", "orders", "g", all=True).start().abort()
    page = http.get("/v1/operations?limit=2").json()
    assert [one["id"] for one in page["operations"]] == [3, 2]
    rest = http.get(f"/v1/operations?limit=2&cursor={page['next_cursor']}").json()
    assert [one["id"] for one in rest["operations"]] == [1] and rest["next_cursor"] is None


@pytest.mark.shows("O14", "X09")
def test_clients_plan_purge_note_and_mend(service: Service) -> None:
    log, client = service.log, service.client(name="ops")
    ids = bury(log)
    plan = client.plan_operation("redrive", "orders", "g", all=True)
    assert plan == log.operation("redrive", "orders", "g", all=True).plan() or plan.count == 5
    info = client.start_operation("redrive", "orders", "g", plan, all=True, rate_per_second=5, reason="fixed")
    assert (info.id, info.planned, info.rate_per_second, info.cutoff) == (1, 5, 5, plan.cutoff)
    assert client.pause_operation(1).state == "paused" and client.resume_operation(1).state == "running"
    assert client.get_operation(1).by == "ops" and client.abort_operation(1).state == "aborted"
    assert [one.id for one in client.operations(state="aborted")] == [1]
    replay = client.plan_operation("replay", "orders", "g", all=True)
    assert client.start_operation("replay", "orders", "g", replay, all=True).cutoff == 5
    (kind,) = client.fingerprints("orders", "g")
    client.note_fingerprint("orders", "g", kind.fingerprint, note="fix in 4.2", muted=True)
    noted = client.fingerprints("orders", "g")
    assert noted == log.fingerprints("orders", "g") and noted[0].note == "fix in 4.2"
    assert client.purge("orders", "g", fingerprint=kind.fingerprint, event_ids=ids[:2]).count == 2
    assert len(client.deliveries("orders", "g", state="DEAD")) == 3
    assert len(client.deliveries("orders", "g", state="DEAD", purged=True)) == 5
    new = client.mend("orders", "g", ids[2], {"n": 100}, reason="typo")
    assert client.mend("orders", "g", ids[2], {"n": 100}).duplicate
    assert log.event("orders", new.event_id).json() == {"n": 100}
    with pytest.raises(PlanOutdated):
        client.start_operation("purge", "orders", "g", plan, all=True)
    limited = service.http(service.token("operate"))
    sent = {"event_id": str(ids[3]), "payload": 1}
    assert is_problem(limited.post("/v1/streams/orders/groups/g/mend", json=sent), 403, "forbidden")


@pytest.mark.shows("X09")
def test_operations_of_other_streams_do_not_exist(service: Service) -> None:
    """Their numbers can be guessed, so an answer says neither where they are nor that there are any."""
    bury(service.log)
    number = service.log.operation("purge", "orders", "g", all=True).start().id
    http = service.http(service.token("operate:elsewhere", "read:elsewhere"))
    for answer in (http.get(f"/v1/operations/{number}"), http.post(f"/v1/operations/{number}/abort")):
        assert is_problem(answer, 404, "unknown_operation") and "orders" not in answer.text
    assert is_problem(http.get("/v1/operations?stream=orders&limit=1"), 403, "forbidden")
    reader = service.http(service.token("operate:elsewhere", "read"))
    assert is_problem(reader.post(f"/v1/operations/{number}/abort"), 403, "forbidden")
