"""Job types: what apps declare of them, the groups that claim from their streams, and the schemas of their payloads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import orjson

from penstock.core.group import GroupSettings, check_settings
from penstock.core.job import (
    GROUP,
    LEASE_SECONDS,
    PRIORITIES,
    JobName,
    check_keep_dead,
    check_keep_finished,
    name_of,
)
from penstock.core.retry import Retry
from penstock.errors import InvalidJob, MissingDependency
from penstock.log import create_group, groups
from penstock.log.change_group import policy_of, set_policy
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction

_KNOWN_SECONDS: Final = 2.0  # how long a schema is believed to be the one that is stored


def declare(
    store: Store,
    queue: str,
    job_type: str,
    *,
    schema: Mapping[str, Any] | None,
    retry: Retry,
    lease_seconds: float,
    max_in_flight: int | None = None,
    rate_per_second: float | None = None,
    keep_finished: Any = None,
    keep_dead: Any = None,
    by: str,
) -> None:
    """Store what an app says of a type, and apply it to the groups that its streams have."""
    wanted = check_settings(
        retry=retry, lease_seconds=lease_seconds, max_in_flight=max_in_flight, rate_per_second=rate_per_second
    )

    keep = {"keep_finished": check_keep_finished(keep_finished), "keep_dead": check_keep_dead(keep_dead)}

    def work(tx: Transaction) -> None:
        changed = tx.rows(
            "jobs.declare",
            queue=queue,
            job_type=job_type,
            schema=None if schema is None else orjson.dumps(schema, option=orjson.OPT_SORT_KEYS).decode(),
            lease_seconds=wanted.lease_seconds,
            max_in_flight=wanted.max_in_flight,
            rate_per_second=wanted.rate_per_second,
            now=tx.now(),
            **keep,
            **wanted.retry.stored,
        )
        if not changed:
            return
        for priority in PRIORITIES:
            stream = JobName(queue, priority, job_type).stream
            known = groups.find(tx, stream, GROUP)
            if known is not None and policy_of(known.settings) != policy_of(wanted):
                set_policy(tx, stream, GROUP, wanted, by)

    transact(store, work)
    _schemas.get(store, {}).pop((queue, job_type), None)


def ensure_group(tx: Transaction, stream: str) -> None:
    """Create the group of a stream of jobs where it is missing, with the settings of its type."""
    name = name_of(stream)
    assert name is not None
    row = tx.one("jobs.type", queue=name.queue, job_type=name.type)
    create_group.ensure(tx, stream, GROUP, "beginning", _settings(row))


def _settings(row: Row | None) -> GroupSettings:
    if row is None:
        return check_settings(lease_seconds=LEASE_SECONDS)
    retry = Retry(row.max_attempts, row.base_seconds, row.factor, row.cap_seconds, row.jitter, row.max_age_seconds)
    return check_settings(
        retry=retry,
        lease_seconds=row.lease_seconds,
        max_in_flight=row.max_in_flight,
        rate_per_second=row.rate_per_second,
    )


# --- schemas ----------------------------------------------------------------------------------------------------------

# Validators by type, and until when they are believed.
_schemas: WeakKeyDictionary[Store, dict[tuple[str, str], tuple[float, Any]]] = WeakKeyDictionary()


def check_payloads(store: Store, name: JobName, payloads: list[bytes]) -> None:
    """`InvalidJob` if a payload is not what the schema of its type says."""
    validator = _validator(store, name)
    if validator is None:
        return
    for position, payload in enumerate(payloads):
        try:
            given = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise InvalidJob(f"The payload of {name.type!r} is not JSON: {error}.") from error
        problem = next(iter(validator.iter_errors(given)), None)
        if problem is not None:
            where = "/".join(map(str, problem.instance_path)) or "the payload"
            which = f"Job {position}: " if len(payloads) > 1 else ""
            raise InvalidJob(f"{which}{name.type!r} refuses {where}: {problem.message}.")


def has_schema(store: Store, name: JobName) -> bool:
    """Whether the payloads of a type are checked."""
    return _validator(store, name) is not None


def _validator(store: Store, name: JobName) -> Any:
    known, key = _schemas.setdefault(store, {}), (name.queue, name.type)
    until, validator = known.get(key, (0.0, None))
    if time.monotonic() < until:
        return validator
    row = look(store, lambda tx: tx.one("jobs.type", queue=name.queue, job_type=name.type))
    validator = None if row is None or row.schema is None else _compiled(row.schema)
    known[key] = (time.monotonic() + _KNOWN_SECONDS, validator)
    return validator


def _compiled(schema: str) -> Any:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise MissingDependency("The type has a schema; pip install 'penstock[jobs]' to check payloads.") from error
    return jsonschema_rs.validator_for(orjson.loads(schema))
