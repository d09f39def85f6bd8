"""Claims over HTTP: keys that make them repeatable, long polls, heartbeats in bulk; and bulk appends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import penstock
from penstock.errors import Forbidden, KeyReused
from tests.support.http_service import Service, is_problem
from tests.support.waiting import wait_until

CLAIM = "/v1/streams/orders/groups/fraud/claim"


def fill(log: penstock.Log, count: int = 5) -> None:
    log.create_group("orders", "fraud")
    log.append_many("orders", [{"payload": {"n": n}, "type": "order.created"} for n in range(count)])


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    found: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        found[place] = calls[place]()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.shows("O12")
def test_a_claim_with_a_key_is_made_once(service: Service) -> None:
    fill(service.log)
    http = service.http(service.token())
    key = {"Idempotency-Key": "k-1"}
    first = http.post(CLAIM, json={"limit": 2, "claimed_by": "w"}, headers=key)
    again = http.post(CLAIM, json={"limit": 2, "claimed_by": "w"}, headers=key)
    assert first.status_code == again.status_code == 200 and first.json() == again.json()
    assert is_problem(http.post(CLAIM, json={"limit": 3, "claimed_by": "w"}, headers=key), 409, "key_reused")
    other = http.post(CLAIM, json={"limit": 2, "claimed_by": "w"}, headers={"Idempotency-Key": "k-2"})
    assert other.json()["id"] != first.json()["id"]
    stranger = service.http(service.token()).post(CLAIM, json={"limit": 2, "claimed_by": "w"}, headers=key)
    assert [one["payload"]["n"] for one in stranger.json()["events"]] == [4], "a key belongs to its principal"
    lease = first.json()
    settled = http.post(f"/v1/leases/{lease['id']}/settle", json={"token": lease["token"]})
    assert settled.json()["published"] == 2
    assert is_problem(http.post(CLAIM, json={"limit": 2, "claimed_by": "w"}, headers=key), 409, "lease_lost")


@pytest.mark.shows("O12")
def test_claims_with_one_key_at_the_same_time_get_one_lease(service: Service) -> None:
    fill(service.log, 50)
    clients = [service.http(token) for token in [service.token()] * 6]

    def claim(http: httpx.Client) -> Callable[[], Any]:
        sent = {"limit": 5, "claimed_by": "w"}
        return lambda: http.post(CLAIM, json=sent, headers={"Idempotency-Key": "same"}).json()["token"]

    assert len(set(in_threads(*map(claim, clients)))) == 1
    (stats,) = service.log.stats().groups
    assert (stats.claimed, stats.open_leases) == (5, 1)


@pytest.mark.shows("O12")
def test_a_claim_that_found_nothing_leaves_its_key_free(service: Service) -> None:
    service.log.create_group("orders", "fraud")
    http = service.http(service.token())
    key = {"Idempotency-Key": "k"}
    empty = http.post(CLAIM, json={}, headers=key)
    assert empty.status_code == 204 and int(empty.headers["retry-after"]) >= 1
    service.log.append("orders", {}, type="t")
    assert http.post(CLAIM, json={}, headers=key).status_code == 200


@pytest.mark.shows("O12", "J11")
def test_jobs_are_claimed_once_for_each_key(service: Service) -> None:
    client = service.client()
    client.submit_many("a", [{"payload": {"n": n}} for n in range(6)])
    first = client.claim_jobs("w", ["a"], limit=3, idempotency_key="k")
    again = client.claim_jobs("w", ["a"], limit=3, idempotency_key="k")
    assert [(one.id, one.token, one.json()) for one in first] == [(one.id, one.token, one.json()) for one in again]
    assert [one.json()["n"] for one in first] == [0, 1, 2]
    one = client.claim_job("w", ["a"], idempotency_key="k-2")
    two = client.claim_job("w", ["a"], idempotency_key="k-2")
    assert one is not None and two is not None and (one.id, one.token) == (two.id, two.token)
    with pytest.raises(KeyReused):
        client.claim_job("w", ["b"], idempotency_key="k-2")
    client.complete_job(one.id, "w")
    with pytest.raises(penstock.LeaseLost):
        client.claim_job("w", ["a"], idempotency_key="k-2")
    assert client.claim_job("w", ["none"], idempotency_key="k-3") is None


@pytest.mark.shows("O12")
def test_submit_and_append_with_a_key_store_once(service: Service) -> None:
    http = service.http(service.token())
    key = {"Idempotency-Key": "order-7"}
    jobs = [http.post("/v1/jobs", json={"type": "a", "payload": {}}, headers=key).json() for _ in range(2)]
    assert jobs[0]["id"] == jobs[1]["id"] and [one["duplicate"] for one in jobs] == [False, True]
    event = {"payload": {}, "type": "t"}
    events = [http.post("/v1/streams/s/events", json=event, headers={"Idempotency-Key": "e"}) for _ in range(2)]
    assert [one.json()["duplicate"] for one in events] == [False, True]


@pytest.mark.shows("O12")
def test_a_long_poll_gets_what_is_appended_while_it_waits(service: Service) -> None:
    service.log.create_group("orders", "fraud")
    client = service.client()

    def append() -> None:
        wait_until(lambda: service.waiting == 1, "the claim to wait")
        service.log.append("orders", {"n": 1}, type="t")

    begun = time.monotonic()
    lease, _ = in_threads(lambda: client.claim("orders", "fraud", claimed_by="w", wait=20), append)
    assert lease is not None and [one.json() for one in lease.events] == [{"n": 1}]
    assert time.monotonic() - begun < 15


@pytest.mark.shows("O12", "J11")
def test_a_long_poll_for_jobs_gets_what_is_submitted_or_comes_back(service: Service) -> None:
    client = service.client()

    def submit() -> None:
        wait_until(lambda: service.waiting == 1, "the claim to wait")
        service.log.submit("a", {"n": 1})

    job, _ = in_threads(lambda: client.claim_job("w", ["a"], wait=20), submit)
    assert job is not None and job.json() == {"n": 1}

    def fail() -> None:
        wait_until(lambda: service.waiting == 1, "the claim to wait")
        client.fail_job(job.id, "w", error="no", retry_in=0)

    again, _ = in_threads(lambda: client.claim_job("w-2", ["a"], wait=20), fail)
    assert again is not None and (again.id, again.attempts) == (job.id, 2)


@pytest.mark.shows("O12")
def test_a_long_poll_ends_when_its_time_is_up_or_the_service_stops(service: Service) -> None:
    service.log.create_group("orders", "fraud")
    client = service.client()
    assert client.claim("orders", "fraud", claimed_by="w", wait=0.2) is None

    def stop() -> None:
        wait_until(lambda: service.waiting == 1, "the claim to wait")
        service.server.stop()

    begun = time.monotonic()
    lease, _ = in_threads(lambda: client.claim("orders", "fraud", claimed_by="w", wait=20), stop)
    assert lease is None and time.monotonic() - begun < 15


@pytest.mark.shows("O12")
def test_nobody_claims_for_a_client_that_has_gone(service: Service) -> None:
    service.log.create_group("orders", "fraud")
    http = service.http(service.token())
    with pytest.raises(httpx.ReadTimeout):
        http.post(CLAIM, json={"wait": 20}, timeout=0.5)
    wait_until(lambda: service.app.state.polls.open == 0, "the service to notice", 10)
    service.log.append("orders", {}, type="t")
    (stats,) = service.log.stats().groups
    assert (stats.pending, stats.claimed) == (1, 0)


@pytest.mark.shows("O12", "J02")
def test_polls_that_wait_for_the_same_jobs_stand_in_line(service: Service) -> None:
    """They get what comes in the order of their arrival; who has gone is passed over."""
    clients = [service.client() for _ in range(6)]
    got: list[str] = []

    def wait_in_line(number: int) -> Callable[[], None]:
        def wait() -> None:
            wait_until(lambda: service.waiting == number, f"{number} to wait")
            if number == 2:
                with pytest.raises(httpx.ReadTimeout):
                    http.post("/v1/jobs/claim", json={"types": ["a"], "wait": 20}, timeout=2)
            else:
                key = "k" if number == 3 else None
                job = clients[number].claim_job(f"w-{number}", ["a"], wait=20, idempotency_key=key)
                got.append(f"{job and job.worker} {job and job.json()['n']}")

        return wait

    def submit() -> None:
        wait_until(lambda: service.waiting == 6, "all to wait")
        wait_until(lambda: service.app.state.polls.open == 5, "one to go")
        for n in range(5):
            service.log.submit("a", {"n": n})
            wait_until(lambda n=n: len(got) == n + 1, "somebody to get it")

    http = service.http(service.token())
    in_threads(*(wait_in_line(number) for number in range(6)), submit)
    assert got == ["w-0 0", "w-1 1", "w-3 2", "w-4 3", "w-5 4"]
    assert {(job.status, job.attempts) for job in service.log.jobs()} == {("CLAIMED", 1)}
    assert service.app.state.polls._lines == {}


@pytest.mark.shows("O12", "J02")
def test_jobs_that_come_together_go_to_all_that_wait(service: Service) -> None:
    clients = [service.client() for _ in range(6)]

    def submit() -> None:
        wait_until(lambda: service.waiting == 6, "all to wait")
        service.log.submit_many("a", [{"payload": {"n": n}} for n in range(4)] + [{"payload": {"n": 4}, "priority": 9}])
        wait_until(lambda: service.app.state.polls.open == 1, "five to get one")
        service.server.stop()

    waiting = [lambda one=one: one.claim_job("w", ["a"], wait=20) for one in clients]
    jobs = in_threads(*waiting, submit)[:6]
    assert sorted(job.json()["n"] for job in jobs if job is not None) == [*range(5)]
    assert len({job.token for job in jobs if job is not None}) == 5


@pytest.mark.shows("O12", "J03")
def test_heartbeats_in_bulk_say_what_became_of_each(service: Service) -> None:
    fill(service.log)
    client = service.client()
    client.submit_many("a", [{"payload": n} for n in range(1, 4)])
    lease = client.claim("orders", "fraud", claimed_by="w")
    jobs = client.claim_jobs("w", ["a"], limit=3)
    assert lease is not None
    client.cancel_job(jobs[1].id)
    client.complete_job(jobs[2].id, "w")
    http = service.http(service.token("work"))
    leases = [{"id": lease.id, "token": lease.token}, *({"token": str(one.token)} for one in jobs)]
    leases.append({"id": lease.id + 1000, "token": lease.token})
    answer = http.post("/v1/heartbeats", json={"leases": leases, "seconds": 600}).json()
    outcomes = [one["outcome"] for one in answer["leases"]]
    assert outcomes == ["extended", "extended", "cancel", "lost", "lost"] and answer["wanted"] == "run"
    shown = service.log.job(jobs[0].id)
    assert shown.expires_at is not None and jobs[0].expires_at is not None
    assert (shown.expires_at - jobs[0].expires_at).total_seconds() > 300
    assert client.heartbeats({lease.id: lease.token}) == {lease.id: "extended"}


@pytest.mark.shows("O12")
def test_the_rest_of_a_lease_can_be_released(service: Service) -> None:
    fill(service.log)
    client = service.client()
    lease = client.claim("orders", "fraud", claimed_by="w")
    assert lease is not None
    events = [*lease.events]
    said = {"done": [events[0]], "failed": {events[1]: "no"}, "rest": "release"}
    for _ in range(2):  # the same again is harmless
        settled = lease.settle(**said)
        assert (settled.published, settled.failed, settled.released) == (1, 1, 3)
    with pytest.raises(penstock.SettleMismatch):
        lease.settle()


@pytest.mark.shows("O12")
def test_an_emit_needs_the_right_to_append(service: Service) -> None:
    fill(service.log)
    worker = service.client("work", "append:alerts")
    lease = worker.claim("orders", "fraud", claimed_by="w")
    assert lease is not None
    with pytest.raises(Forbidden):
        lease.settle(emit=[{"stream": "payments", "payload": 1, "type": "t"}])
    assert lease.settle(emit=[{"stream": "alerts", "payload": 1, "type": "t"}]).published == 5
    assert len(service.log.read("alerts")) == 1 and service.log.read("payments") == []


@pytest.mark.shows("O12")
def test_many_events_are_appended_in_one_request_or_none(service: Service) -> None:
    client = service.client("append")
    events = [{"payload": {"n": n}, "type": "t", "ordering_key": f"k{n % 7}"} for n in range(5_000)]
    made = client.append_many("orders", events)
    assert len(made.event_ids) == 5_000 and made.duplicates == 0
    stored = service.log.read("orders", limit=10_000)
    assert [one.event_id for one in stored] == [*made.event_ids]
    assert [one.json()["n"] for one in stored] == [*range(5_000)]
    chosen = [{"payload": 1, "type": "t", "event_id": penstock.event_id(f"e{n}")} for n in range(3)]
    assert [client.append_many("orders", chosen).duplicates for _ in range(2)] == [0, 3]
    with pytest.raises(penstock.InvalidName):
        client.append_many("orders", [{"payload": 1, "type": "t"}, {"payload": 1, "type": "no type"}])
    assert len(service.log.read("orders", limit=10_000)) == 5_003


@pytest.mark.shows("O12")
def test_pages_follow_a_cursor(service: Service) -> None:
    fill(service.log, 25)
    http = service.http(service.token())
    for path, name in (
        ("/v1/streams/orders/groups/fraud/deliveries", "deliveries"),
        ("/v1/streams/orders/events", "events"),
    ):
        seen: list[int] = []
        cursor: str | None = "0"
        while cursor is not None:
            page = http.get(path, params={"limit": 10, "cursor": cursor}).json()
            seen += [one["payload"]["n"] for one in page[name]]
            cursor = page["next_cursor"]
        assert seen == [*range(25)]


@pytest.mark.shows("O12")
def test_at_most_a_thousand_events_are_named_in_one_call(service: Service) -> None:
    fill(service.log)
    client = service.client()
    with pytest.raises(penstock.InvalidInput):
        client.redrive("orders", "fraud", event_ids=[penstock.event_id(f"{n}") for n in range(1_001)])
    assert client.redrive("orders", "fraud", event_ids=[penstock.event_id("1")]).count == 0
