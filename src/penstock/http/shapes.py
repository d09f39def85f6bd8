"""The schemas of answers, made from the types of what the log returns, so that they cannot differ."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, Final, get_type_hints

from pydantic import TypeAdapter

from penstock.core.finding import Finding
from penstock.core.job import Job
from penstock.core.lease import LeaseRow, Settled
from penstock.core.retry import Retry
from penstock.http.answers import CLAIMED, DELIVERY, EVENT, JOB
from penstock.log.archives.erase import Erased
from penstock.log.archives.record import Archive
from penstock.log.audit_pages import AuditEntry
from penstock.log.deliveries import Attempt, DeliveryRecord
from penstock.log.fingerprints import FingerprintStats
from penstock.log.horizon import Holder
from penstock.log.jobs.schedules import Schedule
from penstock.log.life import Done, GroupLife, HeldBy
from penstock.log.operations.plan import Plan
from penstock.log.operations.record import OperationInfo
from penstock.log.problems import Problem
from penstock.log.retention.policies import RetentionPolicy
from penstock.log.runs import RunInfo
from penstock.log.series import Point, Series
from penstock.log.sizes import Size
from penstock.log.standing import BindingEntry, BlockedKey, Lane, OpenLease
from penstock.log.stats import GroupStats, JobTypeStats, StreamStats
from penstock.log.tokens import Token

Schema = dict[str, Any]
_LIFE: Final = " ".join(one.name for one in fields(GroupLife) if one.name != "history")
_WHOLE: Final[Schema] = {"type": "integer"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_NEEDS_SCOPE: Final[Schema] = {"description": "Left out without the scope `payload`."}


def ref(name: str) -> Schema:
    """Return a reference to one of the schemas below."""
    return {"$ref": f"#/components/schemas/{name}"}


def many(name: str) -> Schema:
    """Return a list of them."""
    return {"type": "array", "items": ref(name)}


def either(*schemas: Schema) -> Schema:
    """Return that an answer has one of these shapes."""
    return {"anyOf": [*schemas]}


def an_object(*, optional: dict[str, Schema] | None = None, **members: Schema) -> Schema:
    """Return an object with these members. It may get more in a later version."""
    return {"type": "object", "required": [*members], "properties": members | (optional or {})}


def page(name: str, of: str) -> Schema:
    """Return a page of a list, and where the next one begins."""
    return an_object(**{name: many(of), "next_cursor": _TEXT_OR_NULL})


def like(example: Any) -> Schema:
    """Return the schema of a simple answer, of which every member is always there and has its kind."""
    if isinstance(example, dict):
        return an_object(**{name: like(value) for name, value in example.items()})
    if isinstance(example, list):
        return {"type": "array", "items": like(example[0])}
    return {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[type(example)]}


def _of(kind: type, names: str | None = None) -> dict[str, Schema]:
    """Return the schemas of the fields of a class, or of some of them."""
    hints = get_type_hints(kind)
    return {name: _schema(hints[name]) for name in (hints if names is None else names.split())}


def _schema(hint: Any) -> Schema:
    found = TypeAdapter(hint).json_schema()
    return {name: value for name, value in found.items() if name not in ("title", "description")}


@cache
def components() -> dict[str, Schema]:
    """Return all schemas of answers by name."""
    body = {"payload": _NEEDS_SCOPE}
    event = _of(DeliveryRecord, EVENT) | _of(DeliveryRecord, "available_at")
    delivery = _of(DeliveryRecord, DELIVERY)
    lease = _of(LeaseRow, "id token stream claimed_by claimed_at expires_at") | {"group": {"type": "string"}}
    job, results = _of(Job, JOB), body | {"result": _NEEDS_SCOPE}
    schedule = _of(Schedule)
    schedule.pop("payload")
    totals = {"completed_total": _WHOLE, "exhausted_total": _WHOLE}
    group_stats = {name: one for name, one in _of(GroupStats).items() if name not in totals}
    return {
        "Event": an_object(**event, optional=body),
        "ClaimedEvent": an_object(**event | _of(DeliveryRecord, CLAIMED), payload={}),
        "Delivery": an_object(**event | delivery, optional=body | {"history": many("Transition")}),
        "Transition": an_object(**_of(Attempt)),
        "Lease": an_object(**lease, events=many("ClaimedEvent")),
        "Settled": an_object(**_of(Settled, "published failed dead released"), kept=many("Lease")),
        "Job": an_object(**job, optional=results),
        "ClaimedJob": an_object(**job, token=_WHOLE, payload={}, result={}),
        "Group": an_object(**_group(), retry=an_object(**_of(Retry, " ".join(Retry().stored)))),
        "Schedule": an_object(**schedule, optional=body),
        "RetentionPolicy": an_object(**_of(RetentionPolicy)),
        "Archive": an_object(**_of(Archive)),
        "Erased": an_object(**_of(Erased)),
        "Operation": an_object(**_of(OperationInfo)),
        "Plan": an_object(**_of(Plan)),
        "Fingerprint": an_object(**_of(FingerprintStats)),
        "Run": an_object(**_of(RunInfo)),
        "GroupStats": an_object(**group_stats, optional=totals),
        "StreamStats": an_object(**_of(StreamStats)),
        "JobTypeStats": an_object(**_of(JobTypeStats)),
        "Lane": an_object(**_of(Lane)),
        "OpenLease": an_object(**_of(OpenLease)),
        "BlockedKey": an_object(**_of(BlockedKey)),
        "BindingEntry": an_object(**_of(BindingEntry)),
        "Series": an_object(**_of(Series, "stream group since until step_seconds"), points=many("Point")),
        "Point": an_object(**_of(Point)),
        "GroupLife": an_object(**_of(GroupLife, _LIFE), history=many("Transition")),
        "HeldBy": an_object(**_of(HeldBy)),
        "Done": an_object(**_of(Done)),
        "LogProblem": an_object(**_of(Problem)),
        "AuditEntry": an_object(**_of(AuditEntry)),
        "Finding": an_object(**_of(Finding)),
        "Holder": an_object(**_of(Holder)),
        "Size": an_object(**_of(Size)),
        "Token": an_object(**_of(Token, "name created_at created_by revoked_at"), scopes=_schema(list[str])),
    }


def _group() -> dict[str, Schema]:
    """Return the members of `group_document`, which come from several classes."""
    kinds: dict[str, Any] = {
        **dict.fromkeys(("stream", "group", "on_dead"), str),
        **dict.fromkeys(("ordering", "pause_reason"), str | None),
        **dict.fromkeys(("keyed", "paused"), bool),
        **{"lanes": int, "lease_seconds": float, "types": list[str] | None, "headers": dict[str, str] | None},
    }
    found = {name: _schema(kind) for name, kind in kinds.items()}
    return found | {"created_at": _of(RunInfo, "started_at")["started_at"]}
