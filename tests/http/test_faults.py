"""Faults through HTTP: stale owners, expired leases, clients that go away, and a database that does."""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.cutting_proxy import Cut, CuttingProxy
from tests.support.http_service import Service, is_problem, serving
from tests.support.logs import MakeLog
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

CLAIM = "/v1/streams/orders/groups/fraud/claim"
LOST = ("store_unavailable", "commit_unknown", "store_busy")
QUICK = penstock.Retry(base_seconds=0, jitter=0)


@pytest.fixture
def timed(make_log: MakeLog, clock: VirtualClock) -> Iterator[Service]:
    """A service on a virtual clock."""
    with serving(make_log(clock=clock)) as running:
        yield running


def fill(log: penstock.Log, count: int, **settings: Any) -> None:
    log.create_group("orders", "fraud", **settings)
    log.append_many("orders", [{"payload": {"n": n}, "type": "t"} for n in range(count)])


def numbers(lease: dict[str, Any]) -> list[int]:
    return [one["payload"]["n"] for one in lease["events"]]


@pytest.mark.shows("K15", "J04")
def test_a_stale_token_changes_nothing_and_the_same_settle_again_is_harmless(
    timed: Service, clock: VirtualClock
) -> None:
    fill(timed.log, 3, lease_seconds=30)
    timed.log.submit("a", {})
    http = timed.http(timed.token())

    def claimed() -> tuple[dict[str, Any], dict[str, Any]]:
        event = http.post(CLAIM, json={"claimed_by": "w"}).json()
        return event, http.post("/v1/jobs/claim", json={"worker": "w"}).json()

    stale, stale_job = claimed()
    clock.advance(31)
    fresh, fresh_job = claimed()  # by the same name: it proves nothing
    assert numbers(fresh) == [0] and fresh_job["id"] == stale_job["id"]
    before = [asdict(one) for one in timed.log.stats().groups]
    for lease in (stale, fresh | {"token": fresh["token"] + 1}, fresh | {"token": stale["token"]}):
        for verb in ("settle", "extend", "release"):
            answer = http.post(f"/v1/leases/{lease['id']}/{verb}", json={"token": lease["token"]})
            assert is_problem(answer, 409, "lease_lost"), verb
    for verb in ("heartbeat", "complete", "fail"):
        answer = http.post(f"/v1/jobs/{stale_job['id']}/{verb}", json={"worker": "w", "token": stale_job["token"]})
        assert is_problem(answer, 409, "lease_lost"), verb
    held = {"leases": [{"token": one["token"]} for one in (stale, stale_job, fresh, fresh_job)]}
    outcomes = [one["outcome"] for one in http.post("/v1/heartbeats", json=held).json()["leases"]]
    assert outcomes == ["lost", "lost", "extended", "extended"]
    assert [asdict(one) for one in timed.log.stats().groups] == before

    first, other = fresh["events"][0]["event_id"], {"token": fresh["token"]}
    settle = {"token": fresh["token"], "failed": {first: "no"}}
    answers = [http.post(f"/v1/leases/{fresh['id']}/settle", json=settle).json() for _ in range(2)]
    assert answers[0] == answers[1] and answers[0]["failed"] == 1
    assert is_problem(http.post(f"/v1/leases/{fresh['id']}/settle", json=other), 409, "settle_mismatch")
    done = {"worker": "w", "token": fresh_job["token"], "result": 7}
    path = f"/v1/jobs/{fresh_job['id']}/complete"
    assert [http.post(path, json=done).status_code for _ in range(2)] == [200, 200]
    assert is_problem(http.post(path, json=done | {"result": 8}), 409, "settle_mismatch")
    assert timed.log.job(fresh_job["id"]).result == 7


@pytest.mark.shows("K16", "J06")
def test_what_kills_its_worker_ends_dead_and_its_mates_are_done(timed: Service, clock: VirtualClock) -> None:
    """A worker over HTTP that dies whenever event 17, or the job, is in its hands: it is never heard of again."""
    fill(timed.log, 40, lease_seconds=30, retry=QUICK)
    poison = timed.log.submit("a", {}, max_attempts=2).id
    http = timed.http(timed.token())
    done: list[int] = []
    for turn in range(100):
        lease = http.post(CLAIM, json={"claimed_by": f"w-{turn}"})
        job = http.post("/v1/jobs/claim", json={"worker": f"w-{turn}", "types": ["a"]})
        if lease.status_code == job.status_code == 204:
            break
        if lease.status_code == 200 and 17 not in numbers(lease.json()):
            token = {"token": lease.json()["token"]}
            assert http.post(f"/v1/leases/{lease.json()['id']}/settle", json=token).status_code == 200
            done += numbers(lease.json())
        else:
            clock.advance(31)
    assert sorted(done) == [n for n in range(40) if n != 17], "its mates are done, and once"
    (dead,) = timed.log.deliveries("orders", "fraud", state="DEAD")
    assert (dead.json(), dead.failures) == ({"n": 17}, 3) and str(dead.last_error).startswith("lease_expired")
    shown = http.get(f"/v1/jobs/{poison}").json()
    assert (shown["status"], shown["attempts"], shown["failures"]) == ("DEAD", 2, 2)
    (stats,) = [one for one in http.get("/v1/stats").json()["groups"] if "exhausted_total" in one]
    assert (stats["completed_total"], stats["exhausted_total"]) == (0, 1)


@pytest.mark.shows("K35")
def test_history_over_http_is_that_of_the_log(timed: Service, clock: VirtualClock) -> None:
    fill(timed.log, 1, lease_seconds=30, retry=penstock.Retry(max_attempts=2, base_seconds=0, jitter=0))
    job_id = timed.log.submit("a", {}).id
    worker, operator = timed.client("work", name="worker"), timed.client(name="ada")

    def worked(name: str) -> None:
        lease, job = worker.claim("orders", "fraud", claimed_by=name), worker.claim_job(name, ["a"])
        assert lease is not None and job is not None
        if name == "w-1":
            clock.advance(31)  # never heard of again
        elif name == "w-2":
            lease.settle(failed={lease.events[0]: "no"})
            worker.fail_job(job.id, name, error="no", retry_in=0)
        else:
            lease.settle()
            worker.complete_job(job.id, name)

    worked("w-1")
    worked("w-2")  # the second failure of the event, which is its last
    event_id = timed.log.deliveries("orders", "fraud")[0].event_id
    clock.advance(1)
    operator.redrive("orders", "fraud", event_ids=[event_id])
    clock.advance(1)
    worked("w-3")
    clock.advance(1)
    operator.replay("orders", "fraud", event_ids=[event_id])
    claims = {
        "orders": ["failed", "dead", "published"],
        timed.log.job(job_id).stream: ["failed", "failed", "published"],
    }
    for (stream, ends), group, one in zip(claims.items(), ("fraud", "workers"), (event_id, job_id), strict=True):
        history = operator.delivery(stream, group, one).history
        assert [asdict(line) for line in history] == [
            asdict(line) for line in timed.log.delivery(stream, group, one).history
        ]
        worked_on = [line for line in history if line.outcome not in ("redriven", "replayed")]
        assert [line.outcome for line in worked_on] == [word for end in ends for word in ("claimed", end)]
        assert [line.by for line in worked_on if line.outcome == "claimed"] == ["w-1", "w-2", "w-3"]
        assert [str(line.error).partition(":")[0] for line in worked_on[1:4:2]] == ["lease_expired", "no"]
    acted = [(line.outcome, line.by) for line in operator.delivery("orders", "fraud", event_id).history]
    assert [acted[4], acted[-1]] == [("redriven", "ada"), ("replayed", "ada")]


# --- clients that go away --------------------------------------------------------------------------------------------


class Unanswered:
    """Holds the service at the commit of a claim until its client has gone."""

    def __init__(self) -> None:
        self.armed, self.held, self.gone = False, threading.Event(), threading.Event()

    def __call__(self, when: str, block: str) -> None:
        if self.armed and (when, block) == ("before", "commit"):
            self.armed = False
            self.held.set()
            assert self.gone.wait(60)

    def claim(self, service: Service, secret: str, **headers: str) -> None:
        """Send a claim, and hang up before it is answered."""
        body = json.dumps({"claimed_by": "w", "limit": 2})
        sent = {
            **{"Host": "here", "Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
            **{"Content-Length": str(len(body)), **headers},
        }
        lines = [f"POST {CLAIM} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", body]
        with socket.create_connection(("127.0.0.1", urlsplit(service.url).port or 0)) as client:
            self.armed = True
            client.sendall("\r\n".join(lines).encode())
            assert self.held.wait(60)
        self.gone.set()
        wait_until(lambda: service.app.state.polls.open == 0, "the claim to end")


@pytest.mark.shows("O12", "K16")
@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with a key"])
def test_an_answer_that_nobody_got(make_log: MakeLog, clock: VirtualClock, keyed: bool) -> None:
    """With a key it can be asked for again. Without one the lease is nobody's until it expires."""
    hook = Unanswered()
    headers = {"Idempotency-Key": "k"} if keyed else {}
    with serving(make_log(clock=clock, hook=hook)) as service:
        fill(service.log, 3, lease_seconds=30, retry=QUICK)
        secret = service.token()
        http = service.http(secret)
        assert http.get("/v1/streams").status_code == 200  # the token is known now, without another look
        hook.claim(service, secret, **headers)
        (stats,) = service.log.stats().groups
        assert (stats.claimed, stats.pending) == (2, 1)
        again = http.post(CLAIM, json={"claimed_by": "w", "limit": 2}, headers=headers).json()
        assert numbers(again) == ([0, 1] if keyed else [2])
        assert {one["attempts"] for one in again["events"]} == {1}
        if not keyed:
            assert http.post(CLAIM, json={}).status_code == 204
            clock.advance(31)
            back = [http.post(CLAIM, json={}) for _ in range(3)]
            found = [one.json() for one in back if one.status_code == 200]
            assert sorted(n for one in found for n in numbers(one)) == [0, 1, 2]


# --- a database that goes away ---------------------------------------------------------------------------------------


def ids(count: int) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


@contextmanager
def over(url: str, **options: Any) -> Iterator[Service]:
    with penstock.open(url, patience_seconds=0.2, **options) as log, serving(log) as service:
        yield service


@contextmanager
def refusing(url: str) -> Iterator[None]:
    """The server lets nobody into this database."""
    name = url.rpartition("/")[2]
    with psycopg.connect(url.replace(name, "postgres"), autocommit=True) as owner:
        owner.execute(f"alter database {name} allow_connections false")
        owner.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", (name,))
        yield
        owner.execute(f"alter database {name} allow_connections true")


@contextmanager
def killed(server: PostgresServer) -> Iterator[None]:
    server.kill()
    yield
    server.start()


@pytest.mark.shows("K42")
def test_a_service_survives_the_end_of_all_its_connections(postgres_log_url: str) -> None:
    with over(postgres_log_url) as service:
        survives(service, refusing(postgres_log_url))


@pytest.mark.shows("K42")
def test_a_service_survives_the_death_of_its_server() -> None:
    with PostgresServer() as server, over(server.create_database()) as service:
        survives(service, killed(server))


def survives(service: Service, away: AbstractContextManager[None]) -> None:
    """Ask for everything while the database is away, and again when it is back: nothing is lost, or done twice."""
    fill(service.log, 4)
    service.log.submit_many("a", [{"payload": n} for n in range(1, 4)])
    http = service.http(service.token())
    lease = http.post(CLAIM, json={"limit": 2}, headers={"Idempotency-Key": "before"}).json()
    job = http.post("/v1/jobs/claim", json={"worker": "w"}, headers={"Idempotency-Key": "job"}).json()
    settle, done = {"token": lease["token"]}, {"worker": "w", "token": job["token"]}
    event, new_job = ids(2)
    asked: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        ("/v1/streams/orders/events", {"payload": {"n": 9}, "type": "t", "event_id": event}, {}),
        ("/v1/jobs", {"type": "b", "payload": {}, "event_id": new_job}, {}),
        (f"/v1/leases/{lease['id']}/settle", settle, {}),
        (f"/v1/jobs/{job['id']}/complete", done, {}),
        ("/v1/jobs/claim", {"worker": "w", "types": ["a"]}, {"Idempotency-Key": "job-2"}),
        (CLAIM, {"limit": 2}, {"Idempotency-Key": "after"}),
    ]
    waiting: list[httpx.Response] = []
    poll = threading.Thread(
        target=lambda: waiting.append(http.post("/v1/jobs/claim", json={"types": ["none"], "wait": 20}))
    )
    poll.start()
    wait_until(lambda: service.waiting == 1, "a claim to wait")
    with away:
        for path, body, headers in asked:
            answer = http.post(path, json=body, headers=headers)
            assert is_problem(answer, 503) and answer.json()["code"] in LOST, path
            assert answer.headers["retry-after"] == "1" and "127.0.0.1" not in answer.text
        assert http.get("/healthz").status_code == 200 and http.get("/readyz").status_code == 503
        poll.join()
        assert is_problem(waiting[0], 503)
    wait_until(lambda: http.get("/readyz").status_code == 200, "the service to find its database")
    for path, body, headers in asked * 2:  # twice: what may have been done is not done again
        answer = http.post(path, json=body, headers=headers)
        assert answer.status_code in (200, 201), (path, answer.text)
    log = service.log
    assert sorted(one.json()["n"] for one in log.read("orders")) == [0, 1, 2, 3, 9]
    (stats,) = log.stats("orders").groups
    assert (stats.published, stats.claimed, stats.pending) == (2, 2, 1)
    assert [(one.status, one.attempts) for one in log.jobs(type="a")] == [
        ("PUBLISHED", 1),
        ("CLAIMED", 1),
        ("PENDING", 0),
    ]
    assert [one.status for one in log.jobs(type="b")] == ["PENDING"]


@pytest.mark.shows("K42", "K15")
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_connection_cut_at_any_statement_of_a_request(
    postgres: PostgresServer, postgres_log: penstock.Log, postgres_log_url: str, how: Cut
) -> None:
    """Each request is repeated until it is answered: all of it happens, and once."""
    postgres_log.create_group("orders", "fraud")
    cut = 0
    with CuttingProxy(postgres.port) as proxy, over(proxy.url(postgres_log_url)) as service:
        http = service.http(service.token())

        def insist(path: str, body: dict[str, Any], number: int, **headers: str) -> Any:
            nonlocal cut
            proxy.cut_at(number, how)
            answer = http.post(path, json=body, headers=headers)
            cut += proxy.cut.is_set()
            proxy.cut_when(lambda statement: None)
            while answer.status_code == 503:
                assert is_problem(answer) and answer.json()["code"] in LOST
                answer = http.post(path, json=body, headers=headers)
            assert answer.status_code in (200, 201), answer.text
            return answer.json()

        for number in range(1, 9):
            event, job = ids(2)
            insist("/v1/streams/orders/events", {"payload": {"n": number}, "type": "t", "event_id": event}, number)
            insist("/v1/jobs", {"type": "a", "payload": {"n": number}, "event_id": job}, number)
            lease = insist(CLAIM, {}, number, **{"Idempotency-Key": event})
            assert numbers(lease) == [number]
            insist(f"/v1/leases/{lease['id']}/settle", {"token": lease["token"]}, number)
            held = insist("/v1/jobs/claim", {"worker": "w"}, number, **{"Idempotency-Key": job})
            assert (held["id"], held["attempts"]) == (job, 1)
            insist(f"/v1/jobs/{job}/complete", {"worker": "w", "token": held["token"], "result": number}, number)
    assert cut > 15
    assert [one.json()["n"] for one in postgres_log.read("orders")] == [*range(1, 9)]
    assert {(one.state, one.attempts) for one in postgres_log.deliveries("orders", "fraud")} == {("PUBLISHED", 1)}
    jobs = postgres_log.jobs()
    assert [(one.status, one.attempts, one.result) for one in jobs] == [("PUBLISHED", 1, n) for n in range(1, 9)]
