"""The same story in Python and over HTTP: the same results, the same error codes."""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

import penstock
from penstock.connect.http import AsyncClient, Client
from penstock.http.serving import listen
from penstock.testing import VirtualClock
from tests.support.http_service import Service, serving
from tests.support.jobs import types_claimed
from tests.support.logs import MakeLog


class Story:
    """Calls verbs of a log or a client and notes what they answer, without what must differ: ids, tokens, times."""

    def __init__(self, api: Any, queue: str) -> None:
        self.api = api
        self.queue = queue
        self.told: list[Any] = []
        self._names: dict[uuid.UUID, str] = {}

    def submit(self, name: str, job_type: str, payload: Any, **options: Any) -> Any:
        job = self.call("submit", job_type, payload, queue=self.queue, **options)
        self._names.setdefault(job.id, name)
        return job.id

    def claim(self, worker: str = "w-1", types: tuple[str, ...] = ("a", "b"), **options: Any) -> Any:
        return self.call("claim_job", worker, list(types), self.queue, **options)

    def call(self, verb: str, *arguments: Any, **options: Any) -> Any:
        try:
            found = getattr(self.api, verb)(*arguments, **options)
        except penstock.PenstockError as error:
            self.told.append((verb, type(error).__name__, error.code))
            return None
        self.told.append((verb, self._shape(found)))
        return found

    def _shape(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self._shape(one) for one in found]
        if not isinstance(found, penstock.Job):
            return found
        names = (
            "type priority status attempts failures max_attempts worker progress message result error error_code "
            "reason headers duplicate payload"
        )
        times = "claimed_at heartbeat_at finished_at expires_at"
        known = {name: getattr(found, name) for name in names.split()}
        known["error"] = re.sub(r"\d{4}-\S+", "TIME", known["error"] or "")
        known |= {name: getattr(found, name) is not None for name in times.split()}
        return self._names.get(found.id), known, found.token is not None


def tell(story: Story, clock: VirtualClock) -> list[Any]:
    """Priorities, heartbeats, progress, failures, expiry, stale owners, cancels, lists and mistakes."""
    call = story.call
    first = story.submit("first", "a", {"n": 1})
    urgent = story.submit("urgent", "b", {"n": 2}, priority=9, headers={"tenant": "eu"}, max_attempts=1)
    later = story.submit("later", "a", {"n": 3}, available_at=clock.now() + timedelta(seconds=130))
    story.submit("unique", "c", {}, unique="k")
    story.submit("unique again", "c", {}, unique="k")
    call("submit", "c", {}, queue=story.queue, unique="k", on_conflict="raise")
    call("submit", "c d", {}, queue=story.queue)
    call("submit", "c", None, queue=story.queue)
    call("submit", "c", {"x": float("nan")}, queue=story.queue)
    call("submit", "c", {}, queue=story.queue, priority=10)

    job = story.claim()
    assert job.id == urgent
    call("job", job.id)
    call("heartbeat", job.id, "w-1", progress=0.4, message="40 of 100")
    call("heartbeat", job.id, "w-1", progress=1.5)
    call("heartbeat", job.id, "w-1", progress=float("nan"))
    call("heartbeat", job.id, "w-2")
    call("heartbeat", job.id, "w-1", token=job.token + 1)
    call("heartbeat", uuid.uuid4(), "w-1", token=job.token)
    call("fail_job", job.id, "w-1", error=ValueError("no such address"))
    call("job", job.id)
    call("complete_job", job.id, "w-1", token=job.token)

    stale = story.claim()
    assert stale.id == first
    clock.advance(31)
    fresh = story.claim("w-2")
    assert fresh.id == first and fresh.token > stale.token
    for verb in ("heartbeat", "complete_job", "fail_job"):
        call(verb, stale.id, "w-1", token=stale.token)
    call("fail_job", fresh.id, "w-2", error="busy", retry_in=100)
    for seconds in (50, 50):
        assert story.claim() is None, "the one waits as long as it said, the other for its time"
        clock.advance(seconds)
    again = call("claim_jobs", "w-3", ["a"], story.queue, limit=5)
    assert [one.id for one in again] == [first, later]
    call("complete_job", first, "w-3", token=again[0].token, result={"sent": [1, "two"]})
    call("complete_job", first, "w-3", token=again[0].token, result={"sent": [1, "two"]})
    call("complete_job", first, "w-3", token=again[0].token, result={"sent": []})
    call("complete_job", later, "w-3", token=again[1].token, result={"x": float("inf")})
    call("cancel_job", later)
    call("heartbeat", later, "w-3", token=again[1].token)
    call("fail_job", later, "w-3", token=again[1].token, error=penstock.Permanent("cancelled"))
    call("cancel_job", later)
    call("cancel_job", uuid.uuid4())
    call("job", "no id")
    call("wait_for_job", first, timeout=0)
    for state in (None, "DEAD", "PUBLISHED", "RUNNING"):
        call("jobs", queue=story.queue, state=state)
    for wrong in ({"worker": ""}, {"types": ["a b"]}, {"queue": "a:b"}, {"lease_seconds": -1}):
        call("claim_job", **({"worker": "w", "types": ["a"], "queue": story.queue} | wrong))
    return story.told


@pytest.mark.shows("J11")
def test_python_and_http_tell_the_same_story(make_log: MakeLog, clock: VirtualClock) -> None:
    log = make_log(clock=clock)
    with serving(make_log(clock=clock)) as service:
        python = tell(Story(log, "python"), clock)
        http = tell(Story(service.client(), "http"), clock)
    for mine, theirs in zip(python, http, strict=True):
        assert mine == theirs
    assert len(python) > 40


@pytest.mark.shows("J11", "J02")
def test_many_claimers_over_http_get_every_job_once(service: Service) -> None:
    clients = [service.client("append", "work", "read") for _ in range(4)]
    ids = clients[0].submit_many("a", [{"payload": {"n": n}} for n in range(60)]).ids
    got: list[list[uuid.UUID]] = [[] for _ in clients]

    def work(number: int) -> None:
        while (job := clients[number].claim_job(f"w-{number}", ["a"])) is not None:
            got[number].append(job.id)
            clients[number].complete_job(job.id, f"w-{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one for some in got for one in some) == sorted(ids)
    assert {(job.status, job.attempts) for job in clients[0].jobs()} == {("PUBLISHED", 1)}


@pytest.mark.shows("J11", "J18")
def test_a_job_can_be_waited_for_over_http(service: Service) -> None:
    client = service.client()
    job_id = client.submit("a", {}).id
    assert client.wait_for_job(job_id, timeout=0).status == "PENDING"
    finisher = threading.Thread(target=lambda: types_claimed(service.log, ["a"]))
    finisher.start()
    assert client.wait_for_job(job_id, timeout=30).status == "PUBLISHED"
    finisher.join()


def settle_story(api: Any, stream: str) -> list[Any]:
    """Events of a group: claimed, and settled in every way."""
    told: list[Any] = []
    for n in range(6):
        api.append(stream, {"n": n}, type="order.created", event_id=penstock.event_id(f"{stream} {n}"))
    api.append(stream, b"\x00\xff", type="order.blob", headers={"k": "v"}, metadata={"m": 1}, partition_key="p")
    lease = api.claim(stream, "g", limit=10, claimed_by="w-1")
    events = [*lease.events]
    told += [(one.payload, one.content_type, one.headers, one.metadata, one.partition_key) for one in events]
    told += [(one.attempts, one.total_attempts, one.failures, one.claimed_by, one.last_error) for one in events]
    said = {
        "failed": {events[0]: ValueError("no"), events[1].event_id: penstock.RetryLater(0, "soon")},
        "dead": {events[2]: "never"},
        "released": [events[3]],
        "keep": [events[4]],
    }
    settled, repeated = lease.settle(**said), lease.settle(**said)
    told.append((settled.published, settled.failed, settled.dead, settled.released))
    (kept,) = settled.kept
    told.append([one.token for one in repeated.kept] == [kept.token])
    told.append([one.json() for one in kept.events])
    told.append(kept.extend(600) == kept.expires_at)
    done = kept.settle(emit=[{"stream": f"{stream}-out", "payload": {"ok": 1}, "type": "out"}])
    told += [done.published, [(one.json(), one.event_type) for one in api.read(f"{stream}-out")]]
    again = api.claim(stream, "g", limit=10, claimed_by="w-2")
    told.append(sorted((one.json()["n"], one.attempts, one.last_error) for one in again.events))
    told.append(again.release().released)
    found = api.deliveries(stream, "g")
    told += [(one.state, one.attempts, one.failures, one.last_error, one.error_code, one.reason) for one in found]
    told.append([line.outcome for line in api.delivery(stream, "g", events[2].event_id).history])
    told.append(api.redrive(stream, "g", event_ids=[events[2].event_id]).count)
    told.append(api.replay(stream, "g", all=True, dry_run=True))
    told.append(api.cancel(stream, "g", event_ids=[events[2].event_id], reason="no need", dry_run=True))
    for wrong in (
        lease.settle,
        again.settle,
        again.extend,
        lambda: api.redrive(stream, "g"),
        lambda: api.redrive(stream, "nobody", all=True),
        lambda: api.kill(stream, "g", event_ids=[events[5].event_id]),
        lambda: api.cancel(stream, "g", event_ids=[uuid.uuid4()]),
        lambda: api.append("jobs:a", {}, type="t"),
        lambda: lease.settle(emit=[{"stream": "jobs:default:0:t", "payload": {}, "type": "t"}]),
        lambda: api.append(stream, {"other": 1}, type="order.created", event_id=events[0].event_id),
        lambda: api.event(stream, uuid.uuid4()),
        lambda: api.claim(stream, "nobody", claimed_by="w"),
    ):
        with pytest.raises(penstock.PenstockError) as caught:
            wrong()
        told.append((type(caught.value), caught.value.code))
    return told


@pytest.mark.shows("O12")
@pytest.mark.parametrize(
    "payload",
    [{"n": 1}, {"n": None, "deep": [None, {"null": "null"}]}, b"\x00\xff", {"base64": "AP8="}, "text", [1, None], 0],
    ids=["object", "nulls", "bytes", "looks like bytes", "text", "list", "zero"],
)
def test_every_payload_is_the_same_alone_and_in_bulk_over_http(service: Service, payload: Any) -> None:
    client = service.client()
    client.append("orders", payload, type="t")
    client.append_many("orders", [{"payload": payload, "type": "t"}, {"payload": payload, "type": "t"}])
    service.log.append("orders", payload, type="t")
    stored = {(event.payload, event.content_type) for event in service.log.read("orders")}
    assert len(stored) == 1, stored


def test_a_number_that_json_does_not_have_is_refused_in_bulk_over_http(service: Service) -> None:
    with pytest.raises(penstock.InvalidInput, match="NaN"):
        service.client().append_many("orders", [{"payload": {"x": float("nan")}, "type": "t"}])
    assert service.log.read("orders") == []


def test_bytes_in_a_bulk_request_are_stored_as_bytes(service: Service) -> None:
    events = [{"payload": {"base64": "AP8="}, "type": "t"}, {"payload": {"n": 1}, "type": "t"}]
    answer = service.http(service.token()).post("/v1/streams/orders/events", json={"events": events})
    assert answer.status_code == 201
    assert [event.payload for event in service.log.read("orders")] == [b"\x00\xff", b'{"n":1}']


@pytest.mark.shows("J11", "O12")
def test_leases_are_the_same_over_http(service: Service) -> None:
    for stream in ("python", "http"):
        service.log.create_group(stream, "g", retry=penstock.Retry(base_seconds=0))
    python = settle_story(service.log, "python")
    http = settle_story(service.client(), "http")
    for mine, theirs in zip(python, http, strict=True):
        assert mine == theirs


@pytest.mark.shows("J11")
def test_order_by_key_and_state_are_kept_over_http(service: Service) -> None:
    def story(api: Any, stream: str) -> list[Any]:
        service.log.create_group(stream, "g", ordering="key", lanes=1, retry=penstock.Retry(base_seconds=0))
        for n in range(6):
            api.append(stream, {"n": n}, type="t", ordering_key=f"k{n % 2}")
        lease = api.claim(stream, "g", limit=10, claimed_by="w")
        first = lease.settle(failed={lease.events[2]: "no"})
        told: list[Any] = [(first.published, first.failed, first.released)]
        told += [(one.ordering_key, one.state, one.attempts, one.failures) for one in api.deliveries(stream, "g")]
        while (lease := api.claim(stream, "g", limit=10, claimed_by="w")) is not None:
            told.append([(one.json()["n"], one.attempts) for one in lease.events])
            lease.settle(state={"k0": {"last": lease.events[-1].json()}})
        return [*told, api.state(stream, "g", "k0"), api.state(stream, "g", "nobody")]

    assert story(service.log, "python") == story(service.client(), "http")


@pytest.mark.shows("J11")
@pytest.mark.shows("O10")
def test_numbers_over_time_are_the_same_over_http(service: Service) -> None:
    log = service.log
    log.create_group("orders", "fraud")
    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(5)])
    log.record_metrics()
    lease = log.claim("orders", "fraud", claimed_by="w", limit=3)
    assert lease is not None
    lease.settle()
    now = datetime.now(UTC)
    window = {"since": now - timedelta(hours=2), "until": now - timedelta(minutes=30), "step_seconds": 300}
    with Client(service.url, token=service.token()) as client:
        for group in ("fraud", None):
            assert client.series("orders", group, **window) == log.series("orders", group, **window)
        newest = client.series("orders", "fraud", until=now + timedelta(seconds=30)).points
        assert sum(one.published or 0 for one in newest) == 3
        with pytest.raises(penstock.InvalidInput):
            client.series("orders", step_seconds=61)
        with pytest.raises(penstock.UnknownGroup):
            client.series("orders", "nobody")


def test_the_async_client_has_the_same_verbs(service: Service) -> None:
    verbs = {name for name in dir(Client) if not name.startswith("_")}
    assert verbs == {name for name in dir(AsyncClient) if not name.startswith("_")}
    assert verbs - {"held", "send", "close"} <= set(dir(penstock.Log))

    async def story() -> None:
        async with AsyncClient(service.url, token=service.token()) as client:
            await client.create_group("orders", "fraud", types=["order.*"])
            await client.append_many("orders", [{"payload": {"n": n}, "type": "order.new"} for n in range(3)])
            lease = await client.claim("orders", "fraud", claimed_by="w", limit=2)
            assert lease is not None and [one.json()["n"] for one in lease.events] == [0, 1]
            assert (await lease.settle(failed={lease.events[0]: "no"})).failed == 1
            job = await client.submit("a", {"to": "ada"})
            claimed = await client.claim_job("w", ["a"])
            assert claimed is not None and claimed.id == job.id and claimed.json() == {"to": "ada"}
            await client.complete_job(job.id, "w", result=7)
            assert (await client.wait_for_job(job.id, timeout=20)).result == 7
            with pytest.raises(penstock.UnknownGroup):
                await client.claim("orders", "nobody", claimed_by="w")
            (group,) = [one for one in (await client.stats()).groups if one.group == "fraud"]
            assert (group.pending, group.published) == (2, 1)

    asyncio.run(story())


def test_a_client_says_that_nothing_was_written() -> None:
    with listen("127.0.0.1", 0) as taken:  # bound, and nobody accepts
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url) as client, pytest.raises(penstock.StoreUnavailable):
            client.append("orders", {}, type="t")


def test_a_broken_connection_leaves_it_open_only_where_it_is() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("cut", request=request)

    chosen = uuid.uuid4()
    with Client("http://nowhere", transport=httpx.MockTransport(broken)) as client:
        with pytest.raises(penstock.CommitUnknown) as caught:
            client.append("orders", {}, type="t", event_id=chosen)
        assert caught.value.event_id == chosen
        with pytest.raises(penstock.CommitUnknown) as unnamed:
            client.submit("a", {})
        assert isinstance(unnamed.value.event_id, uuid.UUID), "it has an id to repeat it with"
        with pytest.raises(penstock.StoreUnavailable):
            client.streams()
    proxy = httpx.MockTransport(lambda request: httpx.Response(502, text="<html>"))
    with Client("http://nowhere", transport=proxy) as client, pytest.raises(penstock.StoreUnavailable):
        client.streams()
