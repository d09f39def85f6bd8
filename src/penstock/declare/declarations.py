"""`Declarations`: the handlers, publishers, sources, pipelines, queries and jobs of an app, made without a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from penstock.core import limits
from penstock.core.binding import check_patterns
from penstock.core.event import check_name
from penstock.core.job import HEARTBEAT_SECONDS, LEASE_SECONDS, QUEUE
from penstock.core.retry import Retry
from penstock.declare.around import Around, hook_of
from penstock.declare.ingest import Ingest, Map
from penstock.declare.job import JobPolicy, JobType, ScheduledJob, job_type_of, scheduled_job_of
from penstock.declare.kinds import check_free
from penstock.declare.pipeline import Pipeline, Sink
from penstock.declare.publisher import Publisher
from penstock.declare.query import Query
from penstock.declare.relay import Relay
from penstock.declare.source import Source
from penstock.declare.subscription import Function, Handler, Policy, Subscription, handler_of
from penstock.errors import PolicyConflict

F = TypeVar("F", bound=Function)


class Declarations:
    """What an app declares, by stream and group."""

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "name")
        self.subscriptions: list[Subscription] = []
        self.pipelines: list[Pipeline] = []
        self.queries: list[Query] = []
        self.jobs: list[JobType] = []
        self.schedules: list[ScheduledJob] = []
        self.ingests: list[Ingest] = []
        self.around = Around()

    def middleware(self, function: F) -> F:
        """Call a function around every call of a handler or a job: `around(call, event, ctx)`; the first is outermost.

        `call()` runs what is inside and returns what it returned; use it at most once. Whatever the function raises is
        the outcome of the event. What it returns, if anything, replaces what the handler returned. It runs where
        the handler runs, within its time limit. An async handler needs `async def` and `await call()`.
        """
        self.around.add(function, [one for each in self.subscriptions for one in each.handlers], self.jobs)
        return function

    def on_start(self, function: F) -> F:
        """Call a function in every process in which handlers or jobs run, before their first call; it may be async.

        If it raises, the process runs nothing: `StartFailed`.
        """
        self.around.on_start.append(hook_of(function))
        return function

    def on_stop(self, function: F) -> F:
        """Call a function when such a process ends, but not when it is killed; the last declared is first."""
        self.around.on_stop.append(hook_of(function))
        return function

    def subscribe(
        self,
        stream: str,
        *,
        group: str,
        types: Sequence[str] | None = None,
        start: str | int | datetime = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        timeout_seconds: float = limits.TIMEOUT_SECONDS,
        ordering: str | None = None,
        isolation: str = "process",
        batch_size: int = limits.BATCH,
        batch_seconds: float = limits.BATCH_SECONDS,
        concurrency: int = 1,
        on_dead: str = "continue",
        lanes: int = limits.LANES_DEFAULT,
        headers: Mapping[str, str] | None = None,
        keyed: bool | None = None,
        memory_mb: int = limits.MEMORY_MB,
        batch: int | None = None,
        max_in_flight: int | None = None,
        rate_per_second: float | None = None,
    ) -> Callable[[F], F]:
        """Call a function with every event of a stream, as this group.

        Handlers of the same group must agree on its settings; each event goes to the first one whose `types` match. A
        handler with a second parameter gets a `Context`, and its group becomes keyed (`keyed=False` opts out and has no
        state). `timeout_seconds` and `memory_mb` are enforced only with `isolation="process"`.

        With `batch=500` the function is called with a list of up to 500 events and returns None or `{event_id: error}`.
        Effects go through `ctx.of(event)`. If it raises, its events are retried in smaller and smaller batches until
        the culprit is called alone.
        """
        policy = Policy(
            start=start,
            retry=retry or Retry(),
            lease_seconds=lease_seconds,
            timeout_seconds=timeout_seconds,
            ordering=ordering,
            isolation=isolation,
            batch_size=batch_size,
            batch_seconds=batch_seconds,
            concurrency=concurrency,
            on_dead=on_dead,
            lanes=lanes,
            headers=dict(headers) if headers else None,
            keyed=keyed,
            memory_mb=memory_mb,
            batch=batch,
            max_in_flight=max_in_flight,
            rate_per_second=rate_per_second,
        )

        def declare(function: F) -> F:
            handler = handler_of(function, types)
            self.around.check_fits(handler.name, handler.is_async)
            check_free(stream, group, pipeline=self.pipelines, query=self.queries)
            known = next((one for one in self.subscriptions if (one.stream, one.group) == (stream, group)), None)
            if known is None:
                self.subscriptions.append(Subscription(stream, group, policy, [handler], self.around))
            else:
                known.join(policy, handler)
            return function

        return declare

    def publish(
        self,
        stream: str,
        *,
        group: str,
        publisher: Publisher,
        topic: Any = None,
        key: Any = None,
        headers: Any = None,
        types: Sequence[str] | None = None,
        start: str | int | datetime = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        ordering: str | None = None,
        batch: int | None = None,
        concurrency: int = 1,
        on_dead: str = "continue",
        lanes: int = limits.LANES_DEFAULT,
        max_in_flight: int | None = None,
        rate_per_second: float | None = None,
    ) -> None:
        """Send every event of a stream to another system, as this group.

        `topic`, `key` and `headers` are rules or functions of the event: see `penstock.declare.route`. By default the
        topic is the publisher's, else the stream; the key is the partition key, else the ordering key; the headers are
        the event's. With `ordering="key"` the events of a key arrive in their order. `batch` events go in one call.

        If the target is down, the group waits, no failure is counted, and it goes on by itself.
        """
        relay = Relay(publisher, topic, key, headers)
        size = relay.batch if batch is None else batch
        policy = Policy(
            start=start,
            retry=retry or Retry(),
            lease_seconds=lease_seconds,
            timeout_seconds=limits.PUBLISH_SECONDS,
            ordering=ordering,
            isolation="inline",
            concurrency=concurrency,
            on_dead=on_dead,
            lanes=lanes,
            keyed=False,
            batch=size,
            max_in_flight=max_in_flight,
            rate_per_second=rate_per_second,
        )
        check_free(*(stream, group), handler=self.subscriptions, pipeline=self.pipelines, query=self.queries)
        relay.found_in(self, len(self.subscriptions))
        handler = Handler(relay, check_patterns(types), wants_context=False, is_async=False)
        self.subscriptions.append(Subscription(stream, group, policy, [handler]))

    def ingest(self, source: Source, *, into: str, map: Map | None = None) -> None:
        """Append the entries of another system's stream to the stream `into`, each of them once.

        `map` is a function of an entry (`penstock.connect.Entry`) that returns the fields of an event as `append_many`
        takes them, or None to drop the entry; without it the source's own rules apply. What cannot become an event goes
        to the stream `<into>.rejected`, with its position and the reason.
        """
        made = Ingest(source, into, map)
        if any(one.source.name == made.source.name for one in self.ingests):
            raise PolicyConflict(f"{made.source.name} is ingested twice: give one of them another group.")
        self.ingests.append(made)

    def job(
        self,
        type: str,
        *,
        schema: Any = None,
        queue: str = QUEUE,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        lease_seconds: float = LEASE_SECONDS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        timeout_seconds: float | None = None,
        concurrency: int = 1,
        memory_mb: int = limits.MEMORY_MB,
        max_in_flight: int | None = None,
        rate_per_second: float | None = None,
        keep_finished: float | timedelta | str | None = None,
        keep_dead: float | timedelta | str | None = None,
        on_invalid: str = "dead",
        on_error: str = "retry",
    ) -> Callable[[F], F]:
        """Do the jobs of a type with a function of the payload, or of the payload and a context.

        With `schema`, a pydantic model, the function gets a model, and payloads that do not fit are refused when they
        are submitted; one found later is DEAD (`on_invalid="complete"`: finished). What the function returns is the
        job's result. `concurrency` jobs run at once, in a process of the type's own. With `on_error="expire"` a failure
        is not reported: the job's lease runs out. Finished jobs are removed after `keep_finished` (seconds or a
        timedelta; 0 at once), dead ones after `keep_dead`; None keeps them.
        """
        policy = JobPolicy(
            retry=(retry or Retry()).with_attempts(max_attempts),
            lease_seconds=lease_seconds,
            heartbeat_seconds=heartbeat_seconds,
            timeout_seconds=timeout_seconds,
            concurrency=concurrency,
            memory_mb=memory_mb,
            max_in_flight=max_in_flight,
            rate_per_second=rate_per_second,
            keep_finished=keep_finished,
            keep_dead=keep_dead,
            on_invalid=on_invalid,
            on_error=on_error,
        )

        def declare(function: F) -> F:
            made = replace(job_type_of(type, queue, function, schema, policy), around=self.around)
            self.around.check_fits(made.name, made.is_async)
            if any((one.type, one.queue) == (made.type, made.queue) for one in self.jobs):
                raise PolicyConflict(f"The job type {type!r} of the queue {queue!r} is declared twice.")
            self.jobs.append(made)
            return function

        return declare

    def schedule(
        self, cron: str, *, tz: str = "UTC", retry: Retry | None = None, timeout_seconds: float | None = None
    ) -> Callable[[F], F]:
        """Call a function by the clock, as a job of its own: with a context, or with nothing.

        `cron` has five fields and means the time in `tz`. Missed runs are made up for by one, and a run waits until
        the last one has ended. The app's name and the function's name are the name of the schedule and of the job type.
        """
        policy = JobPolicy(retry=retry or Retry(), timeout_seconds=timeout_seconds)

        def declare(function: F) -> F:
            found = scheduled_job_of(self.name, function, cron, tz, policy)
            made = replace(found, job=replace(found.job, around=self.around))
            self.around.check_fits(made.name, made.job.is_async)
            if any(one.type == made.job.type for one in self.jobs):
                raise PolicyConflict(f"{made.name!r} is declared twice.")
            self.schedules.append(made)
            self.jobs.append(made.job)
            return function

        return declare

    def pipeline(
        self,
        stream: str,
        *,
        group: str,
        sink: Sink,
        types: Sequence[str] | None = None,
        start: str | int | datetime = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        headers: Mapping[str, str] | None = None,
        batch_size: int = limits.PIPELINE_BATCH,
        in_flight: int | None = None,
        linger_seconds: float = 0.0,
        timeout_seconds: float | None = None,
    ) -> Callable[[F], F]:
        """Call a function from DataFrame to DataFrame with the events of a stream, batch by batch, as this group.

        Runs on Spark only; the rows go into the `sink` (see `penstock.sinks`). The result must not depend on how events
        are batched: if a Spark job fails, the batch is split until each failing event is alone. An event fails if any
        of its rows has a non-null `_error`; an event without rows succeeds.

        `in_flight` batches run side by side and are settled as they finish: two by default, one where the sink needs
        their order. Your function is then called from several threads. `linger_seconds` is how long to wait for a
        trickle to gather into one batch. A task that takes longer than `timeout_seconds` is ended, and the event that
        hangs fails.
        """

        def declare(function: F) -> F:
            made = Pipeline(
                stream,
                group,
                function,
                sink,
                types=None if types is None else tuple(types),
                start=start,
                retry=retry or Retry(),
                lease_seconds=lease_seconds,
                headers=dict(headers) if headers else None,
                batch_size=batch_size,
                in_flight=in_flight,
                linger_seconds=linger_seconds,
                timeout_seconds=timeout_seconds,
            )
            check_free(stream, group, handler=self.subscriptions, pipeline=self.pipelines, query=self.queries)
            self.pipelines.append(made)
            return function

        return declare

    def query(
        self,
        stream: str,
        *,
        group: str,
        sink: Sink,
        output_mode: str = "append",
        checkpoint: str | None = None,
        types: Sequence[str] | None = None,
        start: str | int | datetime = "beginning",
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        max_rows: int = limits.PIPELINE_BATCH,
        trigger_seconds: float = 0.0,
    ) -> Callable[[F], F]:
        """Run a function from streaming DataFrame to streaming DataFrame as a streaming query over this group.

        Runs on Spark only, with windows, watermarks and `transformWithState`; the rows go into a `Table` or a `Stream`,
        exactly once. A failed query is started again. `checkpoint` is the folder of Spark's checkpoint; default:
        `checkpoints/APP/STREAM/GROUP` below $PENSTOCK_HOME or the working directory. `max_rows` limits a micro-batch,
        `trigger_seconds` is the least time between the starts of two.
        """

        def declare(function: F) -> F:
            made = Query(
                stream,
                group,
                function,
                sink,
                app=self.name,
                output_mode=output_mode,
                checkpoint=checkpoint,
                types=None if types is None else tuple(types),
                start=start,
                retry=retry or Retry(),
                headers=dict(headers) if headers else None,
                max_rows=max_rows,
                trigger_seconds=trigger_seconds,
            )
            check_free(stream, group, handler=self.subscriptions, pipeline=self.pipelines, query=self.queries)
            self.queries.append(made)
            return function

        return declare
