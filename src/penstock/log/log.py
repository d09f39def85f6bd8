"""The log: the API of an application. Each method is documented here and implemented in its verb's module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.core import limits
from penstock.core.access import Access
from penstock.core.batch import Event
from penstock.core.columns import RowColumns
from penstock.core.event import Appended, AppendedMany, EventFields, check_name, check_text
from penstock.core.group import Group, GroupOptions, Position, check_settings
from penstock.core.job import LEASE_SECONDS, QUEUE, Job, check_job_name
from penstock.core.lease import Idle, LeaseRow, Settled, Settlement
from penstock.core.retry import Retry
from penstock.log import (
    append,
    audit_pages,
    bindings,
    cancel,
    change_group,
    changes,
    checks,
    circuit,
    claim_once,
    create_group,
    deliveries,
    doctor,
    drain,
    export,
    fingerprints,
    groups,
    horizon,
    keep,
    keyed_state,
    kill,
    life,
    mend,
    newest_events,
    problems,
    prune,
    purge,
    read,
    readers,
    reap,
    record_metrics,
    redrive,
    release,
    replay,
    reschedule,
    rewind,
    runs,
    search,
    series,
    settle,
    sizes,
    skip,
    standing,
    stats,
    tokens,
    vitals,
)
from penstock.log.archives import erase, restore
from penstock.log.archives import record as archive_record
from penstock.log.archives.erase import Erased
from penstock.log.archives.record import Archive
from penstock.log.archives.restore import Restored
from penstock.log.audit_pages import AuditEntry
from penstock.log.bookkeeping import Bookkeeping
from penstock.log.cancel import Cancelled
from penstock.log.changes import Newest
from penstock.log.circuit import OpenCircuit
from penstock.log.claim import Claims
from penstock.log.deliveries import DeliveryRecord
from penstock.log.fingerprints import FingerprintStats, Kind
from penstock.log.horizon import Horizon
from penstock.log.ingest import Ingests
from penstock.log.jobs import beat, finish, lifetime, schedules, submit, types
from penstock.log.jobs import cancel as job_cancel
from penstock.log.jobs import look as jobs
from penstock.log.jobs import newest as newest_jobs
from penstock.log.jobs import retention as job_retention
from penstock.log.jobs.beat import Beat
from penstock.log.jobs.claim import JobClaims
from penstock.log.jobs.held import HeldJobs
from penstock.log.jobs.lifetime import JobTypeSettings
from penstock.log.jobs.newest import JobPage
from penstock.log.jobs.retention import Removed
from penstock.log.jobs.schedules import Schedule
from penstock.log.jobs.submit import Submitted
from penstock.log.lease import Lease
from penstock.log.life import Life
from penstock.log.newest_events import EventPage
from penstock.log.operations import orders, record, start
from penstock.log.operations.operation import Operation
from penstock.log.operations.plan import Plan
from penstock.log.operations.record import OperationInfo, Returned
from penstock.log.operations.run import Runner
from penstock.log.problems import Problem, Survey
from penstock.log.readers import Reader
from penstock.log.repair import Repaired, repair
from penstock.log.retention import apply, policies
from penstock.log.retention.apply import Expired
from penstock.log.retention.policies import Retention, RetentionPolicy
from penstock.log.runs import NewRun, RunCounts, RunInfo
from penstock.log.search import Found
from penstock.log.selection import Filters, Moved, select
from penstock.log.series import Series
from penstock.log.sizes import Size
from penstock.log.standing import BindingEntry, BlockedKey, Lane, OpenLease
from penstock.log.stats import Stats
from penstock.log.tokens import NewToken, Token
from penstock.log.transact import look
from penstock.log.vitals import Vitals
from penstock.stores.base import Store, Transaction

__all__ = ["Log", "Moved"]


class Log:
    """A durable event log in one database, made by `penstock.open(url)`. Thread-safe; open it once per process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._bookkeeping = Bookkeeping(store)
        self._claims = Claims(store, self._bookkeeping)
        self._held_jobs = HeldJobs()
        self.job_claims = JobClaims(store, self._claims, self._held_jobs)
        self.ingests = Ingests(store)
        self._runner = Runner(store)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.store.close()

    # --- append and read -----------------------------------------------------------------------------------------

    def append(self, stream: str, payload: Any, *, connection: Any = None, **fields: Unpack[EventFields]) -> Appended:
        """Store one event. With `connection` it is stored if, and only if, the caller's transaction commits.

        Its fields are `type` (required), `ordering_key`, `headers`, `event_id`, `available_at`, `partition_key`,
        `metadata` and `content_type`. Appending the same event with the same `event_id` again stores nothing and
        returns `duplicate=True`.
        """
        return append.append(self.store, stream, {"payload": payload, **fields}, connection)

    async def append_async(
        self, stream: str, payload: Any, *, connection: Any, **fields: Unpack[EventFields]
    ) -> Appended:
        """Like `append`, on the caller's async connection."""
        return await append.append_async(self.store, stream, {"payload": payload, **fields}, connection)

    def append_many(self, stream: str, events: Iterable[Mapping[str, Any]]) -> AppendedMany:
        """Store many events in one transaction, at bulk speed: all of them or none."""
        return append.append_many(self.store, stream, events)

    def read(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return events in offset order, up to the horizon: nothing can still appear between them."""
        return read.read(self.store, stream, after=after, limit=limit)

    def event(self, stream: str, event_id: Any) -> Event:
        """Return one event by its id or its offset."""
        return read.event(self.store, stream, event_id)

    def streams(self) -> list[str]:
        """Return the names of all streams; the first append creates a stream."""
        return read.streams(self.store)

    def position(self, stream: str, where: Position) -> int:
        """Return the offset just below a position: "beginning", "end", an offset, or a time of creation."""
        return read.position(self.store, stream, where)

    # --- groups --------------------------------------------------------------------------------------------------

    def create_group(
        self, stream: str, group: str, *, start: Position = "beginning", **settings: Unpack[GroupOptions]
    ) -> Group:
        """Create a group; the same call again returns it, different settings raise `GroupExists`.

        Its settings are `retry`, `lease_seconds`, `ordering`, `keyed`, `on_dead`, `types`, `headers`, `lanes`,
        `max_in_flight` and `rate_per_second`. A group with `ordering="key"`, or `keyed` (state without order), is split
        into lanes. Over all workers, `max_in_flight` events are in work at most, and `rate_per_second` are claimed.
        """
        return create_group.create(self.store, stream, group, start, check_settings(**settings))

    def declare_group(
        self, stream: str, group: str, *, start: Position = "beginning", by: str | None = None, **settings: Any
    ) -> Group:
        """Create a group if it is missing, otherwise update its policy.

        Takes the settings of `create_group`. Raises `BindingChanged` if `ordering`, `keyed`, `types` or `headers`
        differ from the stored ones. Apps call this at start.
        """
        return create_group.declare(self.store, stream, group, start, check_settings(**settings), by)

    def groups(self, stream: str | None = None) -> list[Group]:
        """Return all groups, of one stream or of the log."""
        return groups.listed(self.store, stream)

    def set_group(
        self,
        stream: str,
        group: str,
        *,
        retry: Retry | None = None,
        lease_seconds: float | None = None,
        on_dead: str | None = None,
        lanes: int | None = None,
        max_in_flight: int | None = None,
        rate_per_second: float | None = None,
        by: str | None = None,
    ) -> Group:
        """Change the policy of a group; what is not given stays, 0 removes a limit, lanes can only be doubled."""
        return change_group.set_group(
            self.store,
            stream,
            group,
            retry=retry,
            lease_seconds=lease_seconds,
            on_dead=on_dead,
            lanes=lanes,
            max_in_flight=max_in_flight,
            rate_per_second=rate_per_second,
            by=by,
        )

    def pause(self, stream: str, group: str, *, reason: str | None = None, by: str | None = None) -> None:
        """Give the group no new leases; open leases continue."""
        change_group.set_paused(self.store, stream, group, True, reason, by)

    def resume(self, stream: str, group: str, *, reason: str | None = None, by: str | None = None) -> None:
        """Continue after a pause; the reason is for the audit."""
        change_group.set_paused(self.store, stream, group, False, reason, by)

    def bind(
        self,
        stream: str,
        group: str,
        *,
        types: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        by: str | None = None,
    ) -> int:
        """Change which events the group receives, for later events only; returns the offset above which it applies."""
        return bindings.bind(self.store, stream, group, types, headers, by)

    def double_lanes(self, stream: str, group: str, *, by: str | None = None) -> int:
        """Split every lane of an ordered or keyed group in half; returns the new number of lanes."""
        return change_group.double(self.store, stream, group, by)

    def delete_group(self, stream: str, group: str, *, by: str | None = None) -> None:
        """Delete a group and its deliveries; the events stay."""
        change_group.delete(self.store, stream, group, by)

    # --- claim and settle ----------------------------------------------------------------------------------------

    def claim(
        self,
        stream: str,
        group: str,
        *,
        limit: int = 100,
        claimed_by: str,
        lease_seconds: float | None = None,
        run: int | None = None,
    ) -> Lease | None:
        """Claim at most `limit` events; None if nothing is due. `run` is the engine's run that the lease counts for."""
        found = self.try_claim(stream, group, limit=limit, claimed_by=claimed_by, lease_seconds=lease_seconds, run=run)
        return found if isinstance(found, Lease) else None

    def try_claim(
        self,
        stream: str,
        group: str,
        *,
        limit: int = 100,
        claimed_by: str,
        lease_seconds: float | None = None,
        run: int | None = None,
    ) -> Lease | Idle:
        """Like `claim`, but returns `Idle` instead of None: when to try again."""
        found = self._claims.claim(stream, group, limit, limits.BATCH, claimed_by, lease_seconds, run)
        if not isinstance(found, LeaseRow):
            return found
        return Lease(self.store, found, found.events or self.store.read_lease(found))

    def claim_once(
        self,
        principal: str,
        key: str,
        stream: str,
        group: str,
        *,
        limit: int = 100,
        claimed_by: str,
        lease_seconds: float | None = None,
    ) -> Lease | Idle:
        """Like `try_claim`, once for each key of a principal: the same call again returns the same lease.

        It raises `LeaseLost` if that lease has ended, and `KeyReused` if the key was used for another claim. Keys are
        remembered for a day.
        """
        if lease_seconds is not None:
            checks.seconds(lease_seconds, "lease_seconds", limits.LEASE_SECONDS_MOST)
        wanted = min(checks.count(limit, "limit"), limits.BATCH)
        by = checks.required_key(claimed_by, "claimed_by")
        if not wanted:
            return Idle(None)
        found = claim_once.claim(self.store, principal, key, stream, group, wanted, by, lease_seconds)
        return found if isinstance(found, Idle) else Lease(self.store, found, self.store.read_lease(found))

    def lease(self, lease_id: int, token: int) -> Lease:
        """Return a lease by its id and token, open or not; without its events: `Lease.read` reads them."""
        found = look(self.store, lambda tx: keep.row_of(keep.find(tx, lease_id, token)))
        return Lease(self.store, found, RowColumns([]))

    def heartbeats(self, leases: Mapping[int, int], seconds: float) -> Beat:
        """Extend many leases, given by id and token, to `seconds` from now; says which are lost or to be cancelled."""
        checks.seconds(seconds, "seconds", limits.LEASE_SECONDS_MOST)
        return beat.beat(self.store, leases, seconds)

    def try_claim_unread(
        self, stream: str, group: str, *, limit: int, claimed_by: str, run: int | None = None
    ) -> Lease | Idle:
        """Like `try_claim`, for more events than fit into one process: the lease's events are not read."""
        found = self._claims.claim(stream, group, limit, limits.PIPELINE_BATCH, claimed_by, None, run)
        return Lease(self.store, found, RowColumns([])) if isinstance(found, LeaseRow) else found

    def settle(
        self, lease_id: int, token: int, said: Settlement, *, move: Callable[[Transaction], None] | None = None
    ) -> Settled:
        """Apply a settlement; see `Lease.settle`, which creates one."""
        return settle.settle(self.store, lease_id, token, said, move)

    def extend(self, lease_id: int, token: int, seconds: float | None = None) -> datetime:
        """Extend a lease; see `Lease.extend`."""
        return release.extend(self.store, lease_id, token, seconds).expires_at

    def release(self, lease_id: int, token: int) -> Settled:
        """Give a lease back; see `Lease.release`."""
        return release.release(self.store, lease_id, token)

    def reap(
        self,
        *,
        stream: str | None = None,
        group: str | None = None,
        groups: Sequence[tuple[str, str]] | None = None,
    ) -> int:
        """Take back expired leases and update the log's counts; returns how many leases ended.

        Covers all groups, those of a stream, one group, or these `(stream, group)` pairs. Groups without an expired
        lease are not locked.
        """
        ended = reap.reap(self.store, stream, group, groups)
        self._bookkeeping.catch_up()
        return ended

    # --- operate on deliveries -----------------------------------------------------------------------------------

    def redrive(
        self,
        stream: str,
        group: str,
        *,
        event_ids: Iterable[Any] | None = None,
        error: str | None = None,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        fingerprint: str | None = None,
        all: bool = False,
        dry_run: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> Moved:
        """Move dead letters back, DEAD → PENDING with a fresh budget: by id, error, type or time, or all of them.

        `fingerprint="none"` names those without a fingerprint. What was purged or mended is moved only by its id. For
        many, with a canary, a rate and a stop, see `operation`.
        """
        which = select(
            event_ids=event_ids, error=error, type=type, since=since, until=until, fingerprint=fingerprint
        ).or_all(all)
        return redrive.redrive(self.store, stream, group, which, dry_run=dry_run, by=by, reason=reason)

    def purge(
        self,
        stream: str,
        group: str,
        *,
        all: bool = False,
        dry_run: bool = False,
        by: str | None = None,
        reason: str | None = None,
        **filters: Unpack[Filters],
    ) -> Moved:
        """Take dead letters out of the queue for good; `prune` may remove their events. Filters as for `redrive`.

        They stay DEAD with the reason `purged`. Lists and counts of dead letters leave them out, keys that halted at
        one go on, and only `redrive` by id brings one back.
        """
        which = select(**filters).or_all(all)
        return purge.purge(self.store, stream, group, which, dry_run=dry_run, by=by, reason=reason)

    def mend(
        self,
        stream: str,
        group: str,
        event_id: Any,
        payload: Any,
        *,
        into: str | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> Appended:
        """Append a corrected copy of a dead letter's event for this group; the dead letter leaves the queue.

        The copy has the type, key and headers of the old event, names it in its metadata, and goes to the end of its
        key. The stream's other groups do not receive it; with `into`, another stream, all groups of that one do. The
        dead letter stays DEAD, hidden, with the reason `mended`. Repeating the call is harmless.
        """
        return mend.mend(self.store, stream, group, event_id, payload, into=into, reason=reason, by=by)

    def export(self, stream: str, group: str, **filters: Unpack[Filters]) -> Iterator[dict[str, Any]]:
        """Return dead letters with payload and error, one document each, in offset order; see `mend`."""
        return export.export(self.store, stream, group, select(**filters))

    def replay(
        self,
        stream: str,
        group: str,
        *,
        event_ids: Iterable[Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        type: str | None = None,
        all: bool = False,
        dry_run: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> Moved:
        """Deliver finished events again: PUBLISHED → PENDING."""
        which = select(event_ids=event_ids, type=type, since=since, until=until).or_all(all)
        return replay.replay(self.store, stream, group, which, dry_run=dry_run, by=by, reason=reason)

    def rewind(
        self,
        stream: str,
        group: str,
        *,
        to: Position,
        state: str = "keep",
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """Deliver everything above a position again; open leases end, other groups are not affected."""
        return rewind.rewind(self.store, stream, group, to, state=state, dry_run=dry_run, by=by)

    def kill(
        self,
        stream: str,
        group: str,
        *,
        event_ids: Iterable[Any],
        reason: str = "killed",
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """Give up waiting deliveries: PENDING → CLAIMED → DEAD; raises `InFlight` if one is being worked on."""
        return kill.kill(self.store, stream, group, event_ids, reason, dry_run=dry_run, by=by)

    def cancel(
        self,
        stream: str,
        group: str,
        *,
        event_ids: Iterable[Any],
        reason: str = "cancelled",
        dry_run: bool = False,
        by: str | None = None,
    ) -> Cancelled:
        """Give up deliveries that wait, and tell the holders of those that are claimed with their next heartbeat.

        They are DEAD with the reason `cancelled`. One that succeeds before it is ended stays PUBLISHED.
        """
        return cancel.cancel(self.store, stream, group, event_ids, reason, dry_run=dry_run, by=by)

    def reschedule(
        self,
        stream: str,
        group: str,
        *,
        event_ids: Iterable[Any],
        available_at: datetime,
        dry_run: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> Moved:
        """Change when PENDING deliveries become due."""
        return reschedule.reschedule(
            self.store, stream, group, event_ids, available_at, dry_run=dry_run, by=by, reason=reason
        )

    def skip(
        self,
        stream: str,
        group: str,
        key: str,
        *,
        reason: str | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """Let a halted key continue past its dead letters, which stay DEAD; the reason is for the audit."""
        return skip.skip(self.store, stream, group, key, dry_run=dry_run, by=by, reason=reason)

    def prune(
        self,
        stream: str,
        *,
        before: datetime | None = None,
        upto: int | None = None,
        keep_dead: bool = True,
        by: str | None = None,
    ) -> Moved:
        """Remove events created before a time, or up to an offset, that every group has finished.

        Events that a group has not finished stay, and, with `keep_dead`, dead letters. Leases, rows and history of
        removed events are removed, too. Runs many short transactions: if interrupted, what was removed stays removed.
        """
        return prune.prune(self.store, stream, before=before, upto=upto, keep_dead=keep_dead, by=by)

    # --- operations on many ----------------------------------------------------------------------------------------

    def operation(
        self,
        kind: str,
        stream: str,
        group: str,
        *,
        all: bool = False,
        to: Position | None = None,
        state: str = "keep",
        canary: int | None = None,
        rate_per_second: float | None = None,
        stop_on_return: int | None = None,
        reason: str | None = None,
        by: str | None = None,
        **filters: Unpack[Filters],
    ) -> Operation:
        """Describe a "redrive", "replay", "rewind" or "purge" of many; `plan()` it, then `start()` it.

        Takes the filters of `redrive`, or `all`; a rewind takes `to` and `state` as `rewind` does. First `canary`
        deliveries are moved, and the rest once each of them is PUBLISHED or DEAD, `rate_per_second` at most. The
        operation stops once `stop_on_return` of those it moved are DEAD again with the error they had (a replay: with
        any). It survives crashes, moves nothing twice, and keeps the order of keys.
        """
        order = orders.order(
            kind,
            stream,
            group,
            select(**filters),
            all=all,
            to=to,
            state=state,
            canary=canary,
            rate_per_second=rate_per_second,
            stop_on_return=stop_on_return,
            reason=check_text(reason, "reason"),
            by=by,
        )
        return Operation(self.store, self._runner, order)

    def plan_operation(self, kind: str, stream: str, group: str, **options: Any) -> Plan:
        """Return the plan of an operation; options as for `operation`."""
        return self.operation(kind, stream, group, **options).plan()

    def start_operation(self, kind: str, stream: str, group: str, plan: Plan, **options: Any) -> OperationInfo:
        """Start what was planned, with the same options; `PlanOutdated` if the plan does not hold any more."""
        return self.operation(kind, stream, group, **options).start(plan).info

    def pause_operation(self, number: int, *, by: str | None = None) -> OperationInfo:
        """Let an operation move nothing more until it is resumed."""
        return start.pause(self.store, number, by)

    def resume_operation(self, number: int, *, by: str | None = None) -> OperationInfo:
        """Let a paused operation go on."""
        return start.resume(self.store, number, by)

    def abort_operation(self, number: int, *, by: str | None = None) -> OperationInfo:
        """End an operation; what it has moved stays moved."""
        return start.abort(self.store, number, by)

    def get_operation(self, number: int) -> Operation:
        """Return a stored operation, to watch it or to change its course."""
        return Operation(self.store, self._runner, None, record.info(self.store, number))

    def operations(
        self,
        *,
        state: str | None = None,
        stream: str | None = None,
        group: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[OperationInfo]:
        """Return operations, the newest first; pass the last one's id as `before` for the next page."""
        return record.listed(self.store, state=state, stream=stream, group=group, before=before, limit=limit)

    def operation_back(self, number: int, *, limit: int = 20) -> list[Returned]:
        """Return some of what an operation has moved and is DEAD again, whatever the error."""
        return record.came_back(self.store, number, limit)

    def run_operations(self, seconds: float = 1.0) -> bool:
        """Run started operations for about so long; engines and `penstock serve` do this by themselves.

        Returns whether there is more to do now.
        """
        return self._runner.run(checks.seconds(seconds, "seconds"))

    def fingerprints(
        self,
        stream: str,
        group: str,
        *,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        limit: int = 50,
    ) -> list[FingerprintStats]:
        """Return the kinds of errors of a group's dead letters that were seen last, the largest first.

        Of each kind the newest 10,000 are counted. The time it takes does not grow with the dead letters.
        """
        which = select(error=error, type=type, since=since, until=until)
        return fingerprints.fingerprints(self.store, stream, group, which, limit)

    def fingerprint(self, fingerprint: str) -> Kind | None:
        """Return what a fingerprint stands for; None if it is not known."""
        return fingerprints.kind(self.store, fingerprint)

    def note_fingerprint(
        self,
        stream: str,
        group: str,
        fingerprint: str | None,
        *,
        note: str | None = None,
        owner: str | None = None,
        muted: bool | None = None,
        by: str | None = None,
    ) -> None:
        """Say something about a kind of error: a note, who looks after it, whether it is muted.

        What is not given stays, an empty text removes it. `None` is the kind without a fingerprint.
        """
        fingerprints.note(self.store, stream, group, fingerprint, note=note, owner=owner, muted=muted, by=by)

    # --- retention, archives and erasure -------------------------------------------------------------------------

    def set_retention(
        self,
        stream: str,
        *,
        keep: float | timedelta | str | None = None,
        keep_dead: float | timedelta | str | None = None,
        archive: str | None = None,
        by: str | None = None,
    ) -> RetentionPolicy | None:
        """Remove events of a stream by themselves once they are older than `keep` and every group has finished them.

        Times are seconds or a timedelta; what is not given stays as it is; `keep="forever"` removes the policy. The
        events of dead letters stay, unless `keep_dead` says how long after their death ("forever": always). With
        `archive` only what was archived there is removed; "none" ends that.
        """
        return policies.set_retention(self.store, stream, keep, keep_dead, archive, by)

    def retention(self) -> Retention:
        """Return how long the events of streams, and jobs by their type, stay."""
        return policies.retention(self.store)

    def apply_retention(self) -> Expired:
        """Remove some of what policies let go; engines and `penstock serve` do this by themselves.

        Call it again while the result says `more`.
        """
        return apply.apply_retention(self.store)

    def archives(self, stream: str | None = None) -> list[Archive]:
        """Return all archives, of one stream or of the log; `penstock archive` writes them."""
        return archive_record.archives(self.store, stream)

    def restore(
        self,
        stream: str,
        *,
        source: str | None = None,
        after: int = 0,
        upto: int | None = None,
        keep_days: float = limits.RESTORE_KEEP_DAYS,
        by: str | None = None,
    ) -> Restored:
        """Put archived events that were pruned back under their own offsets, so that rewind and replay reach them.

        Groups that had passed them have finished them. `source` is one place of several. Policies leave them alone for
        `keep_days`. If interrupted, call it again.
        """
        return restore.restore(self.store, stream, source=source, after=after, upto=upto, keep_days=keep_days, by=by)

    def erase(
        self, event_id: Any, *, reason: str, by: str | None = None, check: Callable[[str], None] | None = None
    ) -> Erased:
        """Replace the payload of an event by an empty one, in the log and in archives; the event stays, as `erased`.

        What its failures said goes with it. Copies that handlers made of it are not known here. `check` is called with
        the stream before anything is changed, and may raise.
        """
        return erase.erase(self.store, event_id, reason, by, check)

    # --- inspect -------------------------------------------------------------------------------------------------

    def deliveries(
        self,
        stream: str,
        group: str,
        *,
        state: str | None = None,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        event_ids: Iterable[Any] | None = None,
        fingerprint: str | None = None,
        purged: bool = False,
        after: int = 0,
        limit: int = 1000,
    ) -> list[DeliveryRecord]:
        """Return deliveries in offset order; pass the last one's offset as `after` for the next page.

        With `state="DEAD"` those that were purged or mended are left out, unless `purged` asks for them, or
        `event_ids` names them.
        """
        which = select(event_ids=event_ids, error=error, type=type, since=since, until=until, fingerprint=fingerprint)
        return deliveries.deliveries(
            self.store, stream, group, which, state=state, after=after, limit=limit, hidden=purged
        )

    def delivery(self, stream: str, group: str, event_id: Any) -> DeliveryRecord:
        """Return one delivery with its attempt history; the event by its id or its offset."""
        return deliveries.delivery(self.store, stream, group, event_id)

    def life(self, stream: str, event_id: Any) -> Life:
        """Return an event, by its id or its offset, with its delivery and its history in every group of its stream."""
        return life.life(self.store, stream, event_id)

    def stream_of(self, event_id: Any) -> tuple[str, int]:
        """Return the stream and the offset of an event, by its id or its offset."""
        return life.stream_of(self.store, event_id)

    def pruned(self) -> dict[str, int]:
        """Return the offset up to which each stream was pruned, if it was."""
        return life.pruned(self.store)

    def stats(self, stream: str | None = None, group: str | None = None) -> Stats:
        """Return counts per state, lag and age of all groups, a stream's, or one.

        The time it takes does not grow with the log.
        """
        return stats.stats(self.store, stream, group)

    def series(
        self,
        stream: str,
        group: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step_seconds: int | None = None,
    ) -> Series:
        """Return the numbers of a group over time, or without `group` what was appended to a stream.

        Default: the last hour, in at most 120 points. Without `until` the series ends with the last complete bucket;
        with it the running one may be included, counted up to now. Flows are exact: what nobody has recorded yet is
        counted from the leases. Samples that nobody took are None.
        """
        return series.series(self.store, stream, group, since, until, step_seconds)

    def sparklines(
        self, *, since: datetime | None = None, points: int = 30
    ) -> dict[tuple[str, str], tuple[int | None, ...]]:
        """Return how many events each group has finished since a time (default: an hour ago), in so many buckets.

        The keys are stream and group. Buckets that nobody has recorded yet are None.
        """
        return series.sparklines(self.store, since, points)

    def record_metrics(self) -> bool:
        """Record the numbers of this minute, if nobody has; engines and `penstock serve` do this by themselves."""
        return record_metrics.record(self.store)

    def state(self, stream: str, group: str, key: str) -> dict[str, Any]:
        """Return the state of one key, for inspection."""
        return keyed_state.of_key(self.store, stream, group, key)

    def vitals(self) -> Vitals:
        """Return what is wrong with the log as a whole, in numbers: who holds the horizon, blocked lanes, runs."""
        return vitals.vitals(self.store)

    def circuits(self) -> list[OpenCircuit]:
        """Return the groups whose targets are down, and since when."""
        return circuit.opened(self.store)

    def end(self) -> int:
        """Return the last assigned offset, visible or not; idle workers watch it."""
        return drain.end(self.store)

    def idle(self, stream: str, group: str) -> Idle | None:
        """Return why a claim would find nothing now, and when to look again; None if it may find something."""
        return drain.idle(self.store, stream, group)

    def drained(self, stream: str, group: str) -> bool:
        """Return whether nothing is left to do up to the horizon: nothing due, in work or waiting for a retry.

        No file of a sink may wait for its name, either. Events dated in the future and keys that halted at a dead
        letter do not count.
        """
        return drain.drained(self.store, stream, group)

    def examine(self) -> list[doctor.Finding]:
        """Check whether the database is set up to keep its guarantees, and whether anything is stuck."""
        return doctor.examine(self.store)

    def repair(self, *, by: str | None = None) -> Repaired:
        """Make a log writable again after a restore or a failover: raise sequences, end open leases."""
        return repair(self.store, by)

    def survey(self) -> Survey:
        """Return all groups with their numbers, and what is wrong, the worst first. Cheap enough to be asked often."""
        return problems.survey(self.store)

    def survey_of(self, stream: str, group: str | None = None) -> Survey:
        """Return the same of one stream, or of one of its groups."""
        return problems.survey(self.store, check_name(stream, "stream"), group)

    def clock(self) -> datetime:
        """Return the time of the log's database."""
        return look(self.store, lambda tx: tx.now())

    def problems(self) -> list[Problem]:
        """Return what is wrong now, the worst first: what stands still, is held, is lost, or dies."""
        return problems.problems(self.store)

    def lanes(self, stream: str, group: str) -> list[Lane]:
        """Return the lanes of a group: how far each has got, and what came back to it."""
        return standing.lanes(self.store, stream, group)

    def open_leases(self, stream: str, group: str) -> list[OpenLease]:
        """Return the open leases of a group, the oldest first (at most 100)."""
        return standing.leases(self.store, stream, group)

    def blocked_keys(self, stream: str, group: str) -> list[BlockedKey]:
        """Return keys of an ordered group that are held back by a failing or dead delivery (50 are looked at)."""
        return standing.blocked(self.store, stream, group)

    def bindings(self, stream: str, group: str) -> list[BindingEntry]:
        """Return which events a group wants, and wanted, with the offsets from which on; the newest first."""
        return standing.bindings(self.store, stream, group)

    def audit(
        self, *, stream: str | None = None, group: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[AuditEntry]:
        """Return who did what, the newest first; pass the last one's `id` as `before` for the next page."""
        return audit_pages.page(self.store, stream, group, before, limit)

    def newest_events(
        self, stream: str, *, before: int | None = None, type: str | None = None, limit: int = 50
    ) -> EventPage:
        """Return events of a stream, the newest first, with the beginning of their payloads."""
        return newest_events.newest_events(self.store, stream, before, type, limit)

    def event_types(self, stream: str) -> dict[str, int]:
        """Return how many events of each type a stream has, from the tally."""
        return stats.types_of(self.store, stream)

    def search(self, text: str, reads: Callable[[str], bool] = lambda stream: True) -> Found:
        """Look for an id, an offset, a key or an error, among the newest, in the streams that `reads` lets through."""
        return search.search(self.store, text, reads)

    def horizon(self) -> Horizon:
        """Return where the horizon stands, and which open transactions hold it."""
        return horizon.horizon(self.store)

    def sizes(self) -> list[Size]:
        """Return how much room the log takes."""
        return sizes.sizes(self.store)

    def newest(self) -> Newest:
        """Return what is newest of events, leases, audit and runs, to see whether anything has changed. Cheap."""
        return changes.newest(self.store)

    def shown_sql(self, block: str, **params: Any) -> str:
        """Return a query of the pages as this database understands it, to be copied and run."""
        return self.store.shown(block, params)

    # --- jobs ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        type: str,
        payload: Any,
        *,
        max_attempts: int | None = None,
        queue: str = QUEUE,
        priority: int = 0,
        available_at: datetime | None = None,
        event_id: Any = None,
        headers: Mapping[str, str] | None = None,
        unique: str | None = None,
        unique_for: float | None = None,
        on_conflict: str = "skip",
        connection: Any = None,
    ) -> Job:
        """Store a job for the workers of its type; with `connection` only if the caller's transaction commits.

        Priority 9 is claimed first. A job with a `unique` key is not stored while another one of its type and queue
        with this key is unfinished, nor within `unique_for` seconds of it: `on_conflict` "skip" returns the other job,
        "replace" gives it up if it waits and stores this one, "raise" raises `JobExists`.
        """
        name = check_job_name(type, queue, priority)
        fields = {
            "payload": payload,
            "max_attempts": max_attempts,
            "available_at": available_at,
            "event_id": event_id,
            "headers": headers,
        }
        return submit.submit(self.store, name, fields, submit.check_unique(unique, unique_for, on_conflict), connection)

    def submit_many(
        self,
        type: str | Iterable[Mapping[str, Any]],
        jobs: Iterable[Mapping[str, Any]] | None = None,
        *,
        queue: str = QUEUE,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Submitted:
        """Store many jobs in one transaction, at bulk speed: all of them or none.

        Each is a mapping with its `payload`, and with its own `type`, `queue`, `priority`, `max_attempts`,
        `available_at`, `event_id` and `headers` where they differ: `submit_many("email:send", [{"payload": …}, …])`.
        """
        defaults: dict[str, Any] = {"queue": queue, "priority": priority, "max_attempts": max_attempts}
        if jobs is None:
            return submit.submit_many(self.store, type, defaults)  # type: ignore[arg-type]  # checked there
        return submit.submit_many(self.store, jobs, {**defaults, "type": type})

    def declare_job(
        self,
        type: str,
        *,
        queue: str = QUEUE,
        schema: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        lease_seconds: float = LEASE_SECONDS,
        max_in_flight: int | None = None,
        rate_per_second: float | None = None,
        keep_finished: float | timedelta | str | None = None,
        keep_dead: float | timedelta | str | None = None,
        by: str | None = None,
    ) -> None:
        """Declare a job type: from now on its payloads must match this JSON Schema, and its jobs have this policy.

        Finished jobs are removed after `keep_finished` (seconds or a timedelta; 0 at once), dead ones after
        `keep_dead`; None keeps them.
        """
        name = check_job_name(type, queue, 0)
        types.declare(
            self.store,
            name.queue,
            name.type,
            schema=schema,
            retry=retry or Retry(),
            lease_seconds=lease_seconds,
            max_in_flight=max_in_flight,
            rate_per_second=rate_per_second,
            keep_finished=keep_finished,
            keep_dead=keep_dead,
            by=checks.author(by),
        )

    def set_job_type(
        self,
        type: str,
        *,
        queue: str = QUEUE,
        keep_finished: float | timedelta | str | None = None,
        keep_dead: float | timedelta | str | None = None,
        by: str | None = None,
    ) -> JobTypeSettings:
        """Change how long jobs of a type stay; what is not given stays as it is, "forever" keeps them.

        An app that declares the type says it again when it starts.
        """
        return lifetime.set_job_type(self.store, check_job_name(type, queue, 0), keep_finished, keep_dead, by)

    def job_types(self) -> list[JobTypeSettings]:
        """Return the job types that were declared or changed."""
        return lifetime.job_types(self.store)

    def remove_finished_jobs(self) -> Removed:
        """Remove some finished and dead jobs whose time is over; engines and `penstock serve` do this by themselves.

        Call it again while the result says `more`.
        """
        return job_retention.remove_finished(self.store)

    def claim_job(
        self,
        worker: str,
        types: Sequence[str] | None = None,
        queue: str = QUEUE,
        lease_seconds: float | None = None,
    ) -> Job | None:
        """Claim a job of these types (default: all): the highest priority first, then the oldest; None if none is due.

        Its `token` proves that `worker` holds it; it grows with every claim.
        """
        return next(iter(self.job_claims.claim(worker, types, queue, lease_seconds, 1)), None)

    def claim_jobs(
        self,
        worker: str,
        types: Sequence[str] | None = None,
        queue: str = QUEUE,
        lease_seconds: float | None = None,
        *,
        limit: int = 1,
    ) -> list[Job]:
        """Claim up to `limit` jobs at once, each with a token of its own."""
        return self.job_claims.claim(worker, types, queue, lease_seconds, limit)

    def claim_jobs_once(
        self,
        principal: str,
        key: str,
        worker: str,
        types: Sequence[str] | None = None,
        queue: str = QUEUE,
        lease_seconds: float | None = None,
        *,
        limit: int = 1,
    ) -> list[Job]:
        """Like `claim_jobs`, once for each key of a principal; see `claim_once`. They are of one type and priority."""
        return self.job_claims.claim_once(principal, key, worker, types, queue, lease_seconds, limit)

    def heartbeat(
        self,
        id: Any,
        worker: str,
        *,
        token: int | None = None,
        progress: float | None = None,
        message: str | None = None,
    ) -> str:
        """Extend the lease of a job: "extended", or "cancel" if the job should end; `LeaseLost` if it is not held.

        Without `token` only the log object that claimed the job is believed.
        """
        return finish.heartbeat(self.store, self._held_jobs, id, worker, token, progress, message)

    def complete_job(self, id: Any, worker: str, *, token: int | None = None, result: Any = None) -> None:
        """Finish a job and keep its result; the same call again is harmless."""
        finish.complete(self.store, self._held_jobs, id, worker, token, result)

    def fail_job(
        self, id: Any, worker: str, *, token: int | None = None, error: Any = None, retry_in: float | None = None
    ) -> None:
        """Report a failure: the job is retried after its backoff, or `retry_in` seconds, or it is DEAD."""
        finish.fail(self.store, self._held_jobs, id, worker, token, error, retry_in)

    def job(self, id: Any) -> Job:
        """Return a job as it is now; `UnknownJob` if there is none."""
        return jobs.job(self.store, id)

    def jobs(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        state: str | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[Job]:
        """Return jobs in the order of their submission; pass the last one's `offset` as `after` for the next page."""
        return jobs.jobs(self.store, queue=queue, job_type=type, state=state, after=after, limit=limit)

    def job_page(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        state: str | None = None,
        cursor: int | None = None,
        limit: int = 50,
    ) -> JobPage:
        """Return jobs for people who look: the newest first, or, of those that wait or run, the oldest first.

        Its cost does not grow with the log: finished ones are looked for among a thousand jobs, then there is a `next`.
        """
        return newest_jobs.page(self.store, queue=queue, job_type=type, state=state, cursor=cursor, limit=limit)

    def cancel_job(self, id: Any, *, by: str | None = None) -> Job:
        """Cancel a job: a waiting one is DEAD at once, a running one is told with its next heartbeat."""
        return job_cancel.cancel(self.store, id, by)

    def wait_for_job(self, id: Any, timeout: float | None = None) -> Job:
        """Return a job when it is finished, or as it is after `timeout` seconds."""
        return jobs.wait(self.store, id, timeout)

    # --- schedules -----------------------------------------------------------------------------------------------

    def schedule(
        self,
        name: str,
        cron: str,
        *,
        type: str,
        payload: Any = None,
        tz: str = "UTC",
        queue: str = QUEUE,
        priority: int = 0,
        max_attempts: int | None = None,
    ) -> Schedule:
        """Submit a job by the clock, as `cron` says in the time zone `tz`; the same name again changes it.

        Runs that were missed are made up for by one. A run waits until the job of the last one is finished.
        """
        given = {} if payload is None else payload
        job = check_job_name(type, queue, priority)
        return schedules.put(self.store, name, cron, job, given, max_attempts, tz)

    def schedules(self) -> list[Schedule]:
        """Return all schedules."""
        return schedules.listed(self.store)

    def suspend_schedule(self, name: str, *, by: str | None = None) -> Schedule:
        """Submit no runs until `resume_schedule`."""
        return schedules.suspend(self.store, name, True, by)

    def resume_schedule(self, name: str, *, by: str | None = None) -> Schedule:
        """Go on; what was missed while it was suspended is not made up for."""
        return schedules.suspend(self.store, name, False, by)

    def run_schedule(self, name: str, *, by: str | None = None) -> Job:
        """Submit a run now; the next ones come as planned."""
        return self.job(schedules.run_now(self.store, name, by))

    def delete_schedule(self, name: str, *, by: str | None = None) -> None:
        """Delete a schedule; jobs that were submitted stay."""
        schedules.delete(self.store, name, by)

    def tick_schedules(self) -> list[Any]:
        """Submit the runs that are due; engines do this every second. Returns the ids of their jobs."""
        return [*schedules.tick(self.store)]

    # --- streaming readers ---------------------------------------------------------------------------------------

    def readers(self, stream: str, group: str) -> list[Reader]:
        """Return the readers that hold claims of this group."""
        return readers.listed(self.store, stream, group)

    def release_reader(
        self,
        stream: str,
        group: str,
        reader: str,
        *,
        reason: str | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """Take back what a reader holds. Its query, if it still runs, fails with `ClaimLost`."""
        return readers.release(self.store, stream, group, reader, dry_run=dry_run, by=by, reason=reason)

    # --- runs of engines -----------------------------------------------------------------------------------------

    def runs(self, *, all: bool = False) -> list[RunInfo]:
        """Return runs that have not ended, newest first; with `all` ended ones, too (the last thousand).

        A run whose process was killed becomes `lost` once its heartbeat is old.
        """
        return runs.listed(self.store, all=all)

    def stop_run(self, run: int, *, by: str | None = None) -> RunInfo:
        """Stop a run gracefully, on any host: it reads the request with its next heartbeat, within seconds."""
        return runs.want(self.store, run, "stop", by)

    def quiet_run(self, run: int, *, by: str | None = None) -> RunInfo:
        """Let a run finish what it has claimed, and claim nothing new until `resume_run`."""
        return runs.want(self.store, run, "quiet", by)

    def resume_run(self, run: int, *, by: str | None = None) -> RunInfo:
        """Let a quiet run continue."""
        return runs.want(self.store, run, "run", by)

    def start_run(self, new: NewRun) -> int:
        """Record the start of a run; returns its id."""
        return runs.start(self.store, new)

    def beat_run(self, run: int, *, token: str | None = None) -> str:
        """Record a heartbeat; returns what the run should do: run, quiet or stop.

        With `token`, the name of one, `UnknownRun` unless the run is over HTTP, begun with this token, and not over.
        """
        return runs.beat(self.store, run, token)

    def wanted_of_run(self, run: int) -> str | None:
        """Return what a run should do: run, quiet or stop; None if it has no row. Its tasks ask."""
        return runs.wanted_of(self.store, run)

    def order_run(self, run: int, wanted: str) -> None:
        """Tell the tasks of one's own run to run, be quiet or stop."""
        runs.order(self.store, run, wanted)

    def count_run(self, run: int) -> RunCounts:
        """Count what the leases of a run do from now on."""
        return RunCounts(self.store, run)

    def end_run(self, run: int, outcome: str) -> None:
        """Record the end of a run."""
        runs.end(self.store, run, outcome)

    # --- tokens of the HTTP service ------------------------------------------------------------------------------

    def create_token(self, name: str, scopes: Iterable[str], *, by: str | None = None) -> NewToken:
        """Create a token with scopes such as "read" or "work:orders"; its secret is shown here only."""
        return tokens.create(self.store, name, scopes, by)

    def tokens(self) -> list[Token]:
        """Return all tokens, without their secrets, revoked ones included."""
        return tokens.listed(self.store)

    def revoke_token(self, name: str, *, by: str | None = None) -> Token:
        """Revoke a token; running services refuse it within a second."""
        return tokens.revoke(self.store, name, by)

    def access_of(self, hashed: bytes) -> Access | None:
        """Return what the token with this hash (SHA-256 of its secret) allows; None if it allows nothing."""
        return tokens.access(self.store, hashed)
