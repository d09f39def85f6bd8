"""One good request for every route of the HTTP service, on a log that has something for each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import penstock
from penstock.log.runs import NewRun

STREAM, GROUP, KEY = "orders", "fraud", "c-1"
JOB_STREAM = "jobs:default:0:mail"
OWNER = "owner"
_STANDING = ("lanes", "leases", "blocked", "bindings")


@dataclass(frozen=True)
class Sample:
    """A request that succeeds."""

    method: str
    route: str  # as OpenAPI names it
    scope: str | None
    path: str
    body: Any = None
    filtered: bool = field(default=False, kw_only=True)  # it shows what may be seen, and refuses nobody who may look
    elsewhere: int = field(default=403, kw_only=True)  # how those are answered who may do it for other streams
    owner: str | None = field(default=None, kw_only=True)  # the only token that may do it
    everywhere: bool = field(default=False, kw_only=True)  # it needs the scope for all streams
    also: tuple[str, ...] = field(default=(), kw_only=True)  # scopes that it needs besides


def prepare(log: penstock.Log) -> dict[str, Any]:
    """Events, a lease, dead and finished deliveries, a job in hand and one that waits, a schedule."""
    log.create_group(STREAM, GROUP, keyed=True, lanes=1)
    made = [log.append(STREAM, {"n": n}, type="order.created", ordering_key=KEY) for n in range(3)]
    lease = log.claim(STREAM, GROUP, limit=3, claimed_by="w")
    assert lease is not None
    ids = [str(one.event_id) for one in made]
    lease.settle(dead={ids[0]: "boom"}, effects={ids[1]: {"state": {KEY: {"seen": 1}}}})
    log.create_group(STREAM, "other")
    waiting = [str(log.append(STREAM, {"n": n}, type="order.created").event_id) for n in (7, 8)]
    held = log.claim(STREAM, GROUP, limit=1, claimed_by="w", lease_seconds=300)
    loose = log.claim(STREAM, "other", limit=1, claimed_by="w", lease_seconds=300)
    log.submit_many("mail", [{"payload": {"to": "ada"}}, {"payload": {"to": "cyd"}}])
    job, failing = log.claim_jobs("w", ["mail"], lease_seconds=600, limit=2)
    queued = log.submit("mail", {"to": "bob"})
    log.schedule("nightly", "0 3 * * *", type="mail")
    log.operation("redrive", STREAM, GROUP, error="no such error").start()
    run = log.start_run(NewRun("w", OWNER, "http", "", "here", 1, ()))
    jobs = {"job": job, "failing": failing, "queued": queued, "run": run}
    return {"dead": ids[0], "waiting": waiting[1], "lease": held, "loose": loose, **jobs}


def samples(facts: dict[str, Any]) -> list[Sample]:
    """The requests, in an order in which each finds what it needs."""
    lease, job = facts["lease"], facts["job"]
    group, held = f"/v1/streams/{STREAM}/groups/{GROUP}", {"token": lease.token}
    groups, events = "/v1/streams/{stream}/groups", "/v1/streams/{stream}/events"
    worker = {"worker": "w", "token": job.token}
    one, jobs, nightly = groups + "/{group}", "/v1/jobs/{job_id}", "/v1/schedules/nightly"
    planned = {"kind": "redrive", "stream": STREAM, "group": GROUP, "all": True, "dry_run": True}
    mended = {"event_id": facts["dead"], "payload": {"n": 100}}
    later, new_job = "2040-01-01T00:00:00Z", {"type": "mail", "payload": {"to": "eve"}}
    return [
        Sample("GET", "/healthz", None, "/healthz"),
        Sample("GET", "/readyz", None, "/readyz"),
        Sample("GET", "/metrics", "read", "/metrics", filtered=True),
        Sample("GET", "/v1/streams", "read", "/v1/streams", filtered=True),
        Sample("GET", "/v1/stats", "read", "/v1/stats", filtered=True),
        Sample("GET", "/v1/runs", "read", "/v1/runs", everywhere=True),
        Sample("GET", events, "read", f"/v1/streams/{STREAM}/events?limit=2"),
        Sample("GET", events + "/{event_id}", "read", f"/v1/streams/{STREAM}/events/{facts['dead']}"),
        Sample("GET", events + "/{event_id}/life", "read", f"/v1/streams/{STREAM}/events/{facts['dead']}/life"),
        Sample("GET", groups, "read", f"/v1/streams/{STREAM}/groups"),
        Sample("GET", "/v1/streams/{stream}/series", "read", f"/v1/streams/{STREAM}/series?step_seconds=120"),
        Sample("GET", one + "/series", "read", f"{group}/series"),
        Sample("GET", one + "/deliveries", "read", f"{group}/deliveries?state=DEAD"),
        Sample("GET", one + "/deliveries/{event_id}", "read", f"{group}/deliveries/{facts['dead']}"),
        Sample(
            "GET", "/v1/state/{stream}/{group}/{key}", "read", f"/v1/state/{STREAM}/{GROUP}/{KEY}", also=("payload",)
        ),
        Sample("GET", "/v1/streams/{stream}/types", "read", f"/v1/streams/{STREAM}/types"),
        *(Sample("GET", f"{one}/{what}", "read", f"{group}/{what}") for what in _STANDING),
        Sample("GET", "/v1/problems", "read", "/v1/problems", filtered=True),
        Sample("GET", "/v1/audit", "read", "/v1/audit", filtered=True),
        Sample("GET", "/v1/doctor", "read", "/v1/doctor", everywhere=True),
        Sample("GET", "/v1/horizon", "read", "/v1/horizon", everywhere=True),
        Sample("GET", "/v1/sizes", "read", "/v1/sizes", everywhere=True),
        Sample("GET", "/v1/tokens", "admin", "/v1/tokens", everywhere=True),
        Sample("GET", "/v1/events/stream", "read", "/v1/events/stream?seconds=0", filtered=True),
        Sample("GET", "/v1/jobs", "read", "/v1/jobs", filtered=True),
        Sample("GET", jobs, "read", f"/v1/jobs/{job.id}"),
        Sample("GET", "/v1/schedules", "read", "/v1/schedules", filtered=True),
        Sample("GET", "/v1/archives", "read", "/v1/archives", filtered=True),
        Sample("GET", "/v1/streams/{stream}/retention", "read", f"/v1/streams/{STREAM}/retention"),
        Sample("POST", events, "append", f"/v1/streams/{STREAM}/events", {"payload": 1, "type": "t"}),
        Sample("POST", "/v1/leases/{lease_id}/extend", "work", f"/v1/leases/{lease.id}/extend", held),
        Sample("POST", "/v1/heartbeats", "work", "/v1/heartbeats", {"leases": [held]}),
        Sample("POST", "/v1/leases/{lease_id}/settle", "work", f"/v1/leases/{lease.id}/settle", held),
        Sample(
            "POST",
            "/v1/leases/{lease_id}/release",
            "work",
            f"/v1/leases/{facts['loose'].id}/release",
            {"token": facts["loose"].token},
        ),
        Sample("POST", one + "/claim", "work", f"{group}/claim", {"limit": 1}),
        Sample("POST", "/v1/runs", "work", "/v1/runs", {"name": "w-1"}, elsewhere=201),
        Sample("POST", "/v1/runs/{run}/end", "work", f"/v1/runs/{facts['run']}/end", elsewhere=404, owner=OWNER),
        Sample("POST", "/v1/jobs", "append", "/v1/jobs", new_job),
        Sample("POST", "/v1/jobs/batch", "append", "/v1/jobs/batch", {"jobs": [new_job]}),
        Sample("POST", jobs + "/heartbeat", "work", f"/v1/jobs/{job.id}/heartbeat", worker),
        Sample("POST", jobs + "/complete", "work", f"/v1/jobs/{job.id}/complete", worker),
        Sample(
            "POST",
            jobs + "/fail",
            "work",
            f"/v1/jobs/{facts['failing'].id}/fail",
            {"worker": "w", "token": facts["failing"].token, "error": "no"},
        ),
        Sample("POST", jobs + "/cancel", "operate", f"/v1/jobs/{facts['queued'].id}/cancel"),
        Sample("POST", "/v1/jobs/claim", "work", "/v1/jobs/claim", {"worker": "w", "types": ["mail"]}),
        Sample("POST", one + "/pause", "operate", f"{group}/pause", {"reason": "deploying"}),
        Sample("POST", one + "/resume", "operate", f"{group}/resume"),
        Sample("POST", one + "/redrive", "operate", f"{group}/redrive", {"all": True, "dry_run": True}),
        Sample("POST", one + "/replay", "operate", f"{group}/replay", {"all": True, "dry_run": True}),
        Sample("POST", one + "/rewind", "operate", f"{group}/rewind", {"to": "beginning", "dry_run": True}),
        Sample(
            "POST",
            one + "/reschedule",
            "operate",
            f"/v1/streams/{STREAM}/groups/other/reschedule",
            {"event_ids": [facts["waiting"]], "available_at": later},
        ),
        Sample(
            "POST",
            one + "/cancel",
            "operate",
            f"/v1/streams/{STREAM}/groups/other/cancel",
            {"event_ids": [facts["waiting"]], "dry_run": True},
        ),
        Sample(
            "POST",
            one + "/kill",
            "operate",
            f"/v1/streams/{STREAM}/groups/other/kill",
            {"event_ids": [facts["waiting"]]},
        ),
        Sample("GET", one + "/fingerprints", "read", f"{group}/fingerprints"),
        Sample("POST", one + "/fingerprints/{fingerprint}", "operate", f"{group}/fingerprints/none", {"note": "x"}),
        Sample("GET", "/v1/operations", "read", "/v1/operations", filtered=True),
        Sample("GET", "/v1/operations/{number}", "read", "/v1/operations/1", elsewhere=404),
        Sample("POST", "/v1/operations", "operate", "/v1/operations", planned),
        Sample("POST", "/v1/operations/{number}/pause", "operate", "/v1/operations/1/pause", elsewhere=404),
        Sample("POST", "/v1/operations/{number}/resume", "operate", "/v1/operations/1/resume", elsewhere=404),
        Sample("POST", "/v1/operations/{number}/abort", "operate", "/v1/operations/1/abort", elsewhere=404),
        Sample("POST", one + "/purge", "operate", f"{group}/purge", {"all": True, "dry_run": True}),
        Sample("POST", one + "/mend", "operate", f"{group}/mend", mended, also=("append",)),
        Sample("POST", one + "/skip", "operate", f"{group}/skip", {"key": KEY, "dry_run": True}),
        Sample("POST", "/v1/schedules/{name}/run", "operate", f"{nightly}/run"),
        Sample("POST", "/v1/schedules/{name}/suspend", "operate", f"{nightly}/suspend"),
        Sample("POST", "/v1/schedules/{name}/resume", "operate", f"{nightly}/resume"),
        Sample(
            "POST", "/v1/schedules", "admin", "/v1/schedules", {"name": "daily", "cron": "0 4 * * *", "type": "mail"}
        ),
        Sample("DELETE", "/v1/schedules/{name}", "admin", nightly),
        Sample("POST", "/v1/streams/{stream}/retention", "admin", f"/v1/streams/{STREAM}/retention", {"keep": 86_400}),
        Sample("POST", "/v1/events/{event_id}/erase", "admin", f"/v1/events/{facts['dead']}/erase", {"reason": "gdpr"}),
        Sample("POST", one + "/bind", "admin", f"{group}/bind", {"types": ["order.*"]}),
        Sample("POST", groups, "admin", f"/v1/streams/{STREAM}/groups", {"group": "third"}),
        Sample("DELETE", one, "admin", f"/v1/streams/{STREAM}/groups/other"),
    ]
