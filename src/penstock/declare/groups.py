"""Store the groups that an app declares."""

from __future__ import annotations

from penstock.core.group import Group
from penstock.declare.job import JobType, ScheduledJob
from penstock.declare.subscription import Subscription
from penstock.log.log import Log


def declare(log: Log, subscription: Subscription, by: str) -> Group:
    """Create the group or update its policy; a different binding or ordering raises."""
    policy = subscription.policy
    return log.declare_group(
        subscription.stream,
        subscription.group,
        start=policy.start,
        retry=policy.retry.without_classes(),
        lease_seconds=policy.lease_seconds,
        ordering=policy.ordering,
        keyed=subscription.keyed,
        on_dead=policy.on_dead,
        types=subscription.types,
        headers=policy.headers,
        lanes=policy.lanes,
        max_in_flight=policy.max_in_flight,
        rate_per_second=policy.rate_per_second,
        by=by,
    )


def declare_job(log: Log, job: JobType, by: str) -> None:
    """Store the schema and the policy of a job type."""
    schema = None if job.schema is None else job.schema.model_json_schema()
    policy = job.policy
    log.declare_job(
        job.type,
        queue=job.queue,
        schema=schema,
        retry=policy.retry.without_classes(),
        lease_seconds=policy.lease_seconds,
        max_in_flight=policy.max_in_flight,
        rate_per_second=policy.rate_per_second,
        keep_finished=policy.keep_finished,
        keep_dead=policy.keep_dead,
        by=by,
    )


def declare_schedule(log: Log, one: ScheduledJob) -> None:
    """Store a schedule."""
    log.schedule(one.name, one.cron, type=one.job.type, queue=one.job.queue, tz=one.tz)
