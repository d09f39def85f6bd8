"""The clients: how a request is sent, what became of it, and the verbs that both have."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
import orjson

from penstock.connect.http import calls, decode, group_calls, job_calls, operation_calls, schedule_calls
from penstock.connect.http.call import Call, HoldingVerb, Verb, given, path_of
from penstock.connect.http.held import HeldTokens
from penstock.connect.http.lease import AsyncLease, Lease
from penstock.core.job import Job
from penstock.errors import CommitUnknown, PenstockError, StoreUnavailable
from penstock.log.jobs.look import FINISHED

T = TypeVar("T")
_WAIT_SECONDS: Final = 20.0  # in one request, for a job to finish


def _headers(token: str | None) -> dict[str, str]:
    found = {"Content-Type": "application/json", "Prefer": "payload=base64"}
    return found if token is None else found | {"Authorization": f"Bearer {token}"}


def _options(call: Call[Any], timeout: float) -> dict[str, Any]:
    return {
        "content": call.content(),
        "params": dict(call.params),
        "headers": {} if call.key is None else {"Idempotency-Key": call.key},
        "timeout": timeout + call.wait,
    }


def _result(call: Call[T], response: httpx.Response) -> T:
    if response.is_success:
        return call.read(orjson.loads(response.content) if response.content else None)
    raise decode.error_of(response.status_code, response.content)


def _lost(call: Call[Any], error: httpx.TransportError) -> PenstockError:
    """Return what a broken connection means: nothing was done, or nobody knows."""
    words = f"{type(error).__name__} {error}".strip()
    if call.method == "GET" or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return StoreUnavailable(f"The service cannot be reached: {words}.")
    return CommitUnknown(f"The connection broke before the answer: {words}.", event_id=call.event_id)


class _Verbs:
    """The methods of the log that the service has."""

    append = Verb(calls.append)
    append_many = Verb(calls.append_many)
    read = Verb(calls.read)
    event = Verb(calls.event)
    streams = Verb(calls.streams)
    deliveries = Verb(calls.deliveries)
    delivery = Verb(calls.delivery)
    stats = Verb(calls.stats)
    series = Verb(calls.series)
    state = Verb(calls.state)
    runs = Verb(calls.runs)

    create_group = Verb(group_calls.create_group)
    groups = Verb(group_calls.groups)
    bind = Verb(group_calls.bind)
    delete_group = Verb(group_calls.delete_group)
    redrive = Verb(group_calls.redrive)
    replay = Verb(group_calls.replay)
    rewind = Verb(group_calls.rewind)
    kill = Verb(group_calls.kill)
    cancel = Verb(group_calls.cancel)
    reschedule = Verb(group_calls.reschedule)
    skip = Verb(group_calls.skip)
    pause = Verb(group_calls.pause)
    resume = Verb(group_calls.resume)
    plan_operation = Verb(operation_calls.plan_operation)
    start_operation = Verb(operation_calls.start_operation)
    operations = Verb(operation_calls.operations)
    get_operation = Verb(operation_calls.get_operation)
    pause_operation = Verb(operation_calls.pause_operation)
    resume_operation = Verb(operation_calls.resume_operation)
    abort_operation = Verb(operation_calls.abort_operation)
    purge = Verb(operation_calls.purge)
    mend = Verb(operation_calls.mend)
    fingerprints = Verb(operation_calls.fingerprints)
    note_fingerprint = Verb(operation_calls.note_fingerprint)

    submit = Verb(job_calls.submit)
    submit_many = Verb(job_calls.submit_many)
    claim_job = HoldingVerb(job_calls.claim_job)
    claim_jobs = HoldingVerb(job_calls.claim_jobs)
    heartbeat = HoldingVerb(job_calls.heartbeat)
    complete_job = HoldingVerb(job_calls.complete_job)
    fail_job = HoldingVerb(job_calls.fail_job)
    heartbeats = Verb(job_calls.heartbeats)
    job = Verb(job_calls.job)
    jobs = Verb(job_calls.jobs)
    cancel_job = Verb(job_calls.cancel_job)

    schedule = Verb(schedule_calls.schedule)
    schedules = Verb(schedule_calls.schedules)
    suspend_schedule = Verb(schedule_calls.suspend_schedule)
    resume_schedule = Verb(schedule_calls.resume_schedule)
    run_schedule = Verb(schedule_calls.run_schedule)
    delete_schedule = Verb(schedule_calls.delete_schedule)


def _claim(
    stream: str,
    group: str,
    limit: int,
    claimed_by: str,
    lease_seconds: float | None,
    wait: float,
    key: str | None,
) -> Call[Any]:
    body = given(limit=limit, claimed_by=claimed_by, lease_seconds=lease_seconds, wait=wait)
    path = path_of("streams", stream, "groups", group, "claim")
    return Call("POST", path, lambda document: document, body, key=key, wait=wait)


class Client(_Verbs):
    """The log behind a service. Thread-safe; open it once per process, and close it.

    `timeout` is how long an answer may take, besides what a request waits for.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.held = HeldTokens()
        self._timeout = timeout
        self._http = httpx.Client(base_url=url, headers=_headers(token), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, call: Call[T], /) -> T:
        """Send a request and return its result."""
        try:
            response = self._http.request(call.method, call.path, **_options(call, self._timeout))
        except httpx.TransportError as error:
            raise _lost(call, error) from error
        return _result(call, response)

    def claim(
        self,
        stream: str,
        group: str,
        *,
        limit: int = 100,
        claimed_by: str,
        lease_seconds: float | None = None,
        wait: float = 0.0,
        idempotency_key: str | None = None,
    ) -> Lease | None:
        """Claim at most `limit` events (1,000); None if nothing is due after `wait` seconds (20)."""
        found = self.send(_claim(stream, group, limit, claimed_by, lease_seconds, wait, idempotency_key))
        return None if found is None else Lease(self, found)

    def wait_for_job(self, id: Any, timeout: float | None = None) -> Job:
        """Return a job when it is finished, or as it is after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_SECONDS if until is None else max(0.0, until - time.monotonic())
            found = self.send(job_calls.job(id, wait=min(left, _WAIT_SECONDS)))
            if found.status in FINISHED or left <= 0:
                return found


class AsyncClient(_Verbs):
    """Like `Client`, with methods that are awaited."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.held = HeldTokens()
        self._timeout = timeout
        self._http = httpx.AsyncClient(base_url=url, headers=_headers(token), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(self, call: Call[T], /) -> T:
        """Send a request and return its result."""
        try:
            response = await self._http.request(call.method, call.path, **_options(call, self._timeout))
        except httpx.TransportError as error:
            raise _lost(call, error) from error
        return _result(call, response)

    async def claim(
        self,
        stream: str,
        group: str,
        *,
        limit: int = 100,
        claimed_by: str,
        lease_seconds: float | None = None,
        wait: float = 0.0,
        idempotency_key: str | None = None,
    ) -> AsyncLease | None:
        """Claim at most `limit` events (1,000); None if nothing is due after `wait` seconds (20)."""
        found = await self.send(_claim(stream, group, limit, claimed_by, lease_seconds, wait, idempotency_key))
        return None if found is None else AsyncLease(self, found)

    async def wait_for_job(self, id: Any, timeout: float | None = None) -> Job:
        """Return a job when it is finished, or as it is after `timeout` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_SECONDS if until is None else max(0.0, until - time.monotonic())
            found = await self.send(job_calls.job(id, wait=min(left, _WAIT_SECONDS)))
            if found.status in FINISHED or left <= 0:
                return found
