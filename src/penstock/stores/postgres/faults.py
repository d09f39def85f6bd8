"""What PostgreSQL's errors mean: the one place that gives those of the driver, the pool and the server their names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed

from penstock.errors import (
    AppendOnly,
    DuplicateMismatch,
    IllegalTransition,
    InvalidInput,
    LeaseLost,
    PenstockError,
    PermissionDenied,
    SchemaMissing,
    StoreBusy,
    StoreClosed,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.stores.base import Conflict

_LAW: dict[str, type[PenstockError]] = {
    "PS001": AppendOnly,
    "PS002": IllegalTransition,
    "PS003": InvalidInput,
    "PS004": DuplicateMismatch,
    "PS005": LeaseLost,
    "42501": PermissionDenied,
}
Classes = tuple[type[Exception], ...]
# In this order, because classes of the driver contain each other. The server ends a session with a time-out that the
# driver does not file under OperationalError; limits that it does file there do not pass by waiting.
_MEANINGS: tuple[tuple[Classes, type[Exception] | None, str], ...] = (
    ((UnicodeEncodeError, OverflowError, psycopg.DataError), InvalidInput, "A value cannot be stored: {words}."),
    ((errors.SerializationFailure, errors.DeadlockDetected), Conflict, "{words}"),
    ((errors.LockNotAvailable, errors.QueryCanceled), StoreBusy, "PostgreSQL gave up waiting: {words}."),
    ((errors.ReadOnlySqlTransaction,), StoreReadOnly, "{where} takes no writes: {words}."),
    (
        (errors.UndefinedTable, errors.InvalidSchemaName),
        SchemaMissing,
        "There is no Penstock schema '{schema}' in this database.",
    ),
    ((PoolClosed,), StoreClosed, "This log was closed."),
    (
        (errors.InsufficientResources, errors.DiskFull, errors.OutOfMemory, errors.TooManyConnections, errors.IoError),
        StoreUnavailable,
        "{where} cannot go on: {words}.",
    ),
    ((errors.ProgramLimitExceeded, errors.StatementTooComplex), None, ""),
    (
        (psycopg.OperationalError, psycopg.InterfaceError, errors.IdleInTransactionSessionTimeout),
        StoreUnavailable,
        "The connection to {where} broke: {words}.",
    ),
)


DRIVERS = (psycopg.Error, UnicodeEncodeError, OverflowError)


@contextmanager
def named(where: str, schema: str) -> Iterator[None]:
    """Errors of the driver become Penstock's, those at the end of a connection's or a transaction's block included."""
    try:
        yield
    except DRIVERS as error:
        found = meaning(error, where, schema)
        if found is None:
            raise
        raise found from error


def meaning(error: Exception, where: str, schema: str) -> Exception | None:
    """The error as Penstock names it; None if it has no name for it."""
    for classes, kind, text in _MEANINGS:
        if isinstance(error, classes):
            return None if kind is None else kind(text.format(words=words(error), where=where, schema=schema))
    if not isinstance(error, psycopg.Error):
        return None
    if isinstance(error, errors.CheckViolation) and error.diag.table_name == "events":
        return InvalidInput(f"The event cannot be stored: {words(error)}.")
    law = _LAW.get(error.sqlstate or "")
    return None if law is None else law(str(error.diag.message_primary))


def is_the_servers(error: psycopg.Error) -> bool:
    """Whether the server lacks disk, memory or sessions, fails, or is going down: no statement is to blame."""
    return (error.sqlstate or "").startswith(("53", "58", "57P"))


def leaves_it_open(connection: psycopg.Connection[Any], error: psycopg.Error) -> bool:
    """Whether nobody knows if a COMMIT happened: the connection broke at it, and the server did not say before that the
    session, and the transaction with it, had ended."""
    gone = connection.broken or connection.closed
    return gone and not isinstance(error, errors.IdleInTransactionSessionTimeout)


def words(error: BaseException) -> str:
    """The first line of what an error says."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
