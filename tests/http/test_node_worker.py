"""A worker in another language, which only speaks HTTP: the one of the examples, in Node."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.http.test_serve import url_of
from tests.support.http_service import Service, serving
from tests.support.logs import MakeLog
from tests.support.node import WORKER, NodeWorker
from tests.support.running import Gate
from tests.support.running import penstock as run
from tests.support.waiting import wait_until

on_postgres = pytest.mark.parametrize("log_url", ["postgresql"], indirect=True)
on_sqlite = pytest.mark.parametrize("log_url", ["sqlite"], indirect=True)
FUNCTIONS = """
import { appendFileSync } from "node:fs";
import { open } from "node:fs/promises";

export default {
  note: async ({ n, gate }) => {
    if (gate) await (await open(gate)).close();
    appendFileSync(process.env.NOTES, `node ${n}\\n`);
    return n;
  },
  until_told: (payload, job) =>
    new Promise((resolve, reject) => job.signal.addEventListener("abort", () => reject(job.signal.reason))),
  refuse: ({ how }) => { throw how ? Object.assign(new Error("no"), how) : null; },
};
"""
APP = """
import os
from penstock import App

app = App(os.environ["PENSTOCK_URL"], name="notes")


@app.job("note", lease_seconds=30)
def note(payload):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"python {payload['n']}\\n")
    return payload["n"]
"""


@on_postgres
@pytest.mark.shows("J11", "J02")
def test_node_and_python_share_the_jobs(log: penstock.Log, log_url: str, tmp_path: Path) -> None:
    """One worker of each, beside a service that is a process of its own: every job is done, and done once."""
    secret, notes, gate = log.create_token("node", ["work"]).secret, tmp_path / "notes", Gate(tmp_path / "gate")
    app = tmp_path / "app.py"
    app.write_text(APP)
    for name in ("serve", "python"):
        (tmp_path / name).mkdir()
    environment = {"PENSTOCK_URL": log_url, "NOTES": str(notes)}
    with run(tmp_path / "serve", "serve", "--port", 0, "--url", log_url, "--json") as serve:
        first = log.submit("note", {"n": 0, "gate": str(tmp_path / "gate")})
        with NodeWorker(tmp_path / "node", url_of(serve), secret, FUNCTIONS, concurrency=1, notes=notes) as worker:
            wait_until(lambda: log.job(first.id).status == "CLAIMED", "Node to have the first job")
            ids = log.submit_many("note", [{"payload": {"n": n}} for n in range(1, 41)]).ids
            with run(tmp_path / "python", "worker", app, environment=environment) as other:
                other.wait_until(lambda: len(log.jobs(state="PUBLISHED")) >= 20, "half of it is done")
                more = log.submit_many("note", [{"payload": {"n": n}} for n in range(41, 81)]).ids
                gate.open()
                every = [first.id, *ids, *more]
                other.wait_until(lambda: len(log.jobs(state="PUBLISHED")) == len(every), "all of it is done")
                other.process.send_signal(signal.SIGTERM)
                assert other.wait() == 0
            worker.process.send_signal(signal.SIGTERM)
            assert worker.wait() == 0 and worker.err == ""
        serve.process.send_signal(signal.SIGTERM)
        assert serve.wait() == 0
    gate.close()
    done = [line.split() for line in notes.read_text().splitlines()]
    assert Counter(int(n) for _, n in done) == {n: 1 for n in range(81)}
    assert {language for language, _ in done} == {"node", "python"}
    jobs = [log.job(one) for one in every]
    assert {(job.status, job.attempts) for job in jobs} == {("PUBLISHED", 1)}
    assert [job.result for job in jobs] == [*range(81)]
    assert [(one.engine, one.state) for one in log.runs(all=True) if one.engine == "http"] == [("http", "ended")]


@pytest.mark.shows("J05", "K16")
def test_the_job_of_a_killed_node_worker_comes_back(make_log: MakeLog, clock: VirtualClock, tmp_path: Path) -> None:
    with serving(make_log(clock=clock)) as service:
        job = service.log.submit("until_told", {})
        # One place: a claim that waits for a second job could take the first one again, for nobody.
        with NodeWorker(tmp_path / "first", service.url, service.token("work"), FUNCTIONS, concurrency=1) as worker:
            wait_until(lambda: service.log.job(job.id).status == "CLAIMED", "Node to have it")
            worker.process.kill()
            worker.wait()
        clock.advance(31)
        functions = "export default { until_told: (payload, job) => job.attempts };"
        with NodeWorker(tmp_path / "second", service.url, service.token("work"), functions) as worker:
            worker.wait_for("done", job.id)
        shown = service.log.job(job.id)
        assert (shown.status, shown.attempts, shown.result) == ("PUBLISHED", 2, 2)


@pytest.mark.shows("J03", "J04", "K15")
def test_a_stopped_node_worker_is_refused_when_it_goes_on(
    make_log: MakeLog, clock: VirtualClock, tmp_path: Path
) -> None:
    """It sleeps beyond its lease and finishes then, before it hears that it has lost the job: 409 `lease_lost`."""
    gate = Gate(tmp_path / "gate")
    with serving(make_log(clock=clock)) as service:
        job = service.log.submit("note", {"n": 1, "gate": str(tmp_path / "gate")})
        settings = {"notes": tmp_path / "notes", "heartbeat_seconds": 3600, "concurrency": 1}
        with NodeWorker(tmp_path / "node", service.url, service.token("work"), FUNCTIONS, **settings) as worker:
            wait_until(lambda: service.log.job(job.id).status == "CLAIMED", "Node to have it")
            worker.process.send_signal(signal.SIGSTOP)
            clock.advance(31)
            again = service.client().claim_job("python", ["note"])
            assert again is not None and (again.id, again.attempts) == (job.id, 2)
            worker.process.send_signal(signal.SIGCONT)
            gate.open()
            worker.wait_for("lost", job.id)
            shown = service.log.job(job.id)
            assert (shown.status, shown.worker, shown.result) == ("CLAIMED", "python", None)
            service.client().complete_job(job.id, "python", token=again.token, result="mine")
            assert service.log.job(job.id).result == "mine"
    gate.close()


@pytest.fixture
def told(service: Service, tmp_path: Path) -> NodeWorker:
    settings = {"heartbeat_seconds": 0.05, "notes": tmp_path / "notes", "concurrency": 2}
    return NodeWorker(tmp_path / "node", service.url, service.token("work"), FUNCTIONS, **settings)


@pytest.mark.shows("J17", "J07")
def test_node_fails_and_cancels_jobs(service: Service, told: NodeWorker) -> None:
    client = service.client()
    with told as worker:
        running = client.submit("until_told", {})
        refused = client.submit("refuse", {"how": {"code": "no_address"}}, max_attempts=1)
        odd = client.submit("refuse", {}, max_attempts=1)
        wait_until(lambda: client.job(running.id).status == "CLAIMED", "Node to have it")
        client.cancel_job(running.id)
        worker.wait_for("cancelled", running.id)
        for one in (refused, odd):
            worker.wait_for("failed", one.id)
        assert (client.job(running.id).status, client.job(running.id).error_code) == ("DEAD", "cancelled")
        assert (client.job(refused.id).error, client.job(refused.id).error_code) == ("no", "no_address")
        assert (client.job(odd.id).status, client.job(odd.id).error) == ("DEAD", "null")


@pytest.mark.shows("J17")
def test_node_obeys_quiet_and_stop(service: Service, told: NodeWorker) -> None:
    client = service.client()
    with told as worker:
        busy = client.submit("until_told", {})
        wait_until(lambda: service.waiting == 1, "Node to have it, and to wait for another one")
        service.log.quiet_run(worker.run, by="ada")
        worker.wait_for("told", "quiet")
        quietly = client.submit("note", {"n": 1})
        wait_until(lambda: beats(service, worker.run) > 2, "more heartbeats")
        assert [client.job(one.id).status for one in (busy, quietly)] == ["CLAIMED", "PENDING"]
        service.log.resume_run(worker.run, by="ada")
        worker.wait_for("done", quietly.id)
        service.log.stop_run(worker.run, by="ada")
        worker.wait_for("told", "stop")
        client.cancel_job(busy.id)  # it finishes what it has, and keeps its lease until then
        assert worker.wait() == 0 and f"cancelled {busy.id}" in worker.out
        (ended,) = service.log.runs(all=True)
        assert (ended.engine, ended.state, ended.outcome) == ("http", "ended", "stopped")


_seen: dict[int, set[object]] = {}


def beats(service: Service, run: int) -> int:
    """How many different heartbeats of a run were seen here."""
    shown = next(one for one in service.log.runs() if one.id == run)
    _seen.setdefault(id(service), set()).add(shown.heartbeat_at)
    return len(_seen[id(service)])


@pytest.mark.shows("O12", "X09")
def test_a_run_belongs_to_the_token_that_began_it(service: Service) -> None:
    http, other = service.http(service.token("work")), service.http(service.token("work", "read"))
    begun = http.post("/v1/runs", json={"name": "w-1", "pid": 7, "groups": ["mail"]})
    path = f"/v1/runs/{begun.json()['id']}/end"
    beat = {"leases": [], "run": begun.json()["id"]}
    assert http.post("/v1/heartbeats", json=beat).json() == {"leases": [], "wanted": "run"}
    assert [one.status_code for one in (other.post("/v1/heartbeats", json=beat), other.post(path))] == [404, 404]
    (shown,) = other.get("/v1/runs").json()["runs"]
    assert (shown["name"], shown["host"], shown["state"]) == ("w-1", "127.0.0.1", "running")
    assert http.post(path, json={"outcome": "done"}).status_code == 204
    assert [one.json()["code"] for one in (http.post("/v1/heartbeats", json=beat), http.post(path))] == [
        "unknown_run",
        "unknown_run",
    ]
    assert http.post("/v1/runs", json={"name": ""}).json()["code"] == "invalid_input"


@on_sqlite
def test_the_functions_of_the_example_work(service: Service, tmp_path: Path) -> None:
    client = service.client()
    made = client.submit("thumbnail:make", {"photo": "cat", "width": 64})
    sent, refused = client.submit("greeting:send", {"to": "ada"}), client.submit("greeting:send", {})
    functions = WORKER.with_name("functions.mjs").read_text(encoding="utf-8")
    with NodeWorker(tmp_path / "node", service.url, service.token("work"), functions) as worker:
        for words in (("done", made.id), ("done", sent.id), ("failed", refused.id)):
            worker.wait_for(*words)
    assert [client.job(one.id).result for one in (made, sent)] == [{"file": "cat-64.png"}, "hello ada"]
    assert client.job(refused.id).error_code == "no_address"


def test_the_page_shows_the_script_as_it_is() -> None:
    page = (WORKER.parents[2] / "docs" / "how-to" / "other-languages.md").read_text(encoding="utf-8")
    for name in ("worker.mjs", "functions.mjs"):
        assert (WORKER.parent / name).read_text(encoding="utf-8") in page, name
