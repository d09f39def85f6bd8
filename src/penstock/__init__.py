"""Penstock: a durable event log in your own database in which every message has a lifecycle.

Names are imported when they are first used, so that `import penstock` and the command line start quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import connect, sinks, spark
    from penstock.app import App
    from penstock.core.batch import Event
    from penstock.core.delivery import State
    from penstock.core.event import Appended, AppendedMany, event_id
    from penstock.core.job import Job
    from penstock.core.lease import Settled
    from penstock.core.retry import Retry
    from penstock.core.signals import Permanent, RetryLater, Unavailable
    from penstock.engine.handlers.context import BatchContext, Context
    from penstock.engine.outcome import Outcome
    from penstock.errors import (
        AppendOnly,
        AppNotFound,
        ArchiveDamaged,
        ArchiveUnavailable,
        BindingChanged,
        ClaimLost,
        CommitUnknown,
        CopiedLog,
        DuplicateMismatch,
        EffectFailed,
        EffectRefused,
        EngineMissing,
        FilterNeeded,
        GroupExists,
        HandlerUnreachable,
        IllegalTransition,
        InFlight,
        InvalidHandler,
        InvalidHook,
        InvalidInput,
        InvalidJob,
        InvalidName,
        InvalidPublisher,
        InvalidSchedule,
        InvalidSignature,
        JobExists,
        KeepNeedsNoKeys,
        LeaseLost,
        MissingField,
        NaiveDatetime,
        NotArchived,
        NotInLease,
        OnStandby,
        OperationEnded,
        OrderedGroup,
        OutboxNeedsTransaction,
        PenstockError,
        PermissionDenied,
        PlanOutdated,
        PolicyConflict,
        Pruned,
        ReservedStream,
        SchemaMissing,
        SchemaTooNew,
        SettleMismatch,
        StartFailed,
        StateConflict,
        StateNeedsKey,
        StoreBusy,
        StoreUnavailable,
        TooLarge,
        UnattributedEffect,
        UnknownEvent,
        UnknownGroup,
        UnknownJob,
        UnknownOperation,
        UnknownReader,
        UnknownSchedule,
    )
    from penstock.log.cancel import Cancelled
    from penstock.log.keyed_state import WithTtl
    from penstock.log.lease import Lease
    from penstock.log.log import Log, Moved
    from penstock.log.open import open_log as open  # the name users type
    from penstock.log.operations.operation import Operation
    from penstock.log.operations.plan import Plan
    from penstock.log.operations.record import OperationInfo
    from penstock.telemetry.settings import Telemetry

__all__ = [
    "App",
    "AppNotFound",
    "AppendOnly",
    "Appended",
    "AppendedMany",
    "ArchiveDamaged",
    "ArchiveUnavailable",
    "BatchContext",
    "BindingChanged",
    "Cancelled",
    "ClaimLost",
    "CommitUnknown",
    "Context",
    "CopiedLog",
    "DuplicateMismatch",
    "EffectFailed",
    "EffectRefused",
    "EngineMissing",
    "Event",
    "FilterNeeded",
    "GroupExists",
    "HandlerUnreachable",
    "IllegalTransition",
    "InFlight",
    "InvalidHandler",
    "InvalidHook",
    "InvalidInput",
    "InvalidJob",
    "InvalidName",
    "InvalidPublisher",
    "InvalidSchedule",
    "InvalidSignature",
    "Job",
    "JobExists",
    "KeepNeedsNoKeys",
    "Lease",
    "LeaseLost",
    "Log",
    "MissingField",
    "Moved",
    "NaiveDatetime",
    "NotArchived",
    "NotInLease",
    "OnStandby",
    "Operation",
    "OperationEnded",
    "OperationInfo",
    "OrderedGroup",
    "OutboxNeedsTransaction",
    "Outcome",
    "PenstockError",
    "Permanent",
    "PermissionDenied",
    "Plan",
    "PlanOutdated",
    "PolicyConflict",
    "Pruned",
    "ReservedStream",
    "Retry",
    "RetryLater",
    "SchemaMissing",
    "SchemaTooNew",
    "SettleMismatch",
    "Settled",
    "StartFailed",
    "State",
    "StateConflict",
    "StateNeedsKey",
    "StoreBusy",
    "StoreUnavailable",
    "Telemetry",
    "TooLarge",
    "UnattributedEffect",
    "Unavailable",
    "UnknownEvent",
    "UnknownGroup",
    "UnknownJob",
    "UnknownOperation",
    "UnknownReader",
    "UnknownSchedule",
    "WithTtl",
    "connect",
    "event_id",
    "open",
    "sinks",
    "spark",
]

_MODULES = {
    "App": "penstock.app",
    "Appended": "penstock.core.event",
    "AppendedMany": "penstock.core.event",
    "BatchContext": "penstock.engine.handlers.context",
    "Context": "penstock.engine.handlers.context",
    "Event": "penstock.core.batch",
    "Job": "penstock.core.job",
    "Lease": "penstock.log.lease",
    "Log": "penstock.log.log",
    "Cancelled": "penstock.log.cancel",
    "Moved": "penstock.log.log",
    "Operation": "penstock.log.operations.operation",
    "OperationInfo": "penstock.log.operations.record",
    "Outcome": "penstock.engine.outcome",
    "Permanent": "penstock.core.signals",
    "Plan": "penstock.log.operations.plan",
    "Retry": "penstock.core.retry",
    "RetryLater": "penstock.core.signals",
    "Settled": "penstock.core.lease",
    "State": "penstock.core.delivery",
    "Telemetry": "penstock.telemetry.settings",
    "Unavailable": "penstock.core.signals",
    "WithTtl": "penstock.log.keyed_state",
    "event_id": "penstock.core.event",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("connect", "sinks", "spark"):
        found: Any = import_module(f"penstock.{name}")
    elif name == "open":
        found = import_module("penstock.log.open").open_log
    else:
        found = getattr(import_module(_MODULES.get(name, "penstock.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
