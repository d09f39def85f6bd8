"""The outbox: append in the caller's own transaction, on the caller's own connection.

`steps` generates the statements; a caller (`stores/callers.py`) runs them, sync or async. It never aborts or commits
the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from penstock.core.event import Appended, NewEvent, check_same
from penstock.errors import SchemaMissing, WrongDatabase
from penstock.stores import callers
from penstock.stores.base import Store, Transaction
from penstock.stores.callers import Caller

T = TypeVar("T")
Steps = Generator[
    tuple[str, Mapping[str, Any]], Sequence[Any] | None, T
]  # blocks with parameters; the first row of each

_SAVE, _KEEP, _UNDO = ("savepoint penstock", "release savepoint penstock", "rollback to savepoint penstock")
_known: WeakKeyDictionary[Any, WeakSet[Store]] = WeakKeyDictionary()  # connections, and the logs they belong to


_SAME = ("event_id", "stream", "event_type", "payload")  # what makes an event the same


def steps(store: Store, event: NewEvent, chosen_id: bool) -> Steps[Appended]:
    """Yield the blocks of one append with their parameters; send each one's first row back."""
    event_id = event.event_id
    params = store.outbox_params(event)
    row = yield "outbox.insert" if store.clock is None else "outbox.insert_at", params
    if row is not None:
        return Appended(int(row[0]), event_id, False)
    known = yield "outbox.find", {name: params[name] for name in _SAME}
    assert known is not None and chosen_id, "an id of our own making was taken"
    offset, same = known
    check_same(event_id, bool(same), event)
    return Appended(int(offset), event_id, True)


def append(store: Store, connection: Any, running: Steps[T], guarded: bool) -> T:
    """Run the steps on a sqlite3, psycopg, SQLAlchemy or Django connection.

    `guarded` steps run within a savepoint: under strict isolation levels a duplicate id may raise an error.
    """
    with callers.sync(store, connection) as caller:
        if not _is_known(store, caller):
            _check_identity(store, caller, caller.execute(store.blocks["outbox.identity"], {}))
        guarded = guarded and store.errors_abort
        if guarded:
            caller.execute(_SAVE, None)
        try:
            block, params = next(running)
            while True:
                block, params = running.send(caller.execute(store.blocks[block], params))
        except StopIteration as end:
            if guarded:
                caller.execute(_KEEP, None)
            return end.value  # type: ignore[no-any-return]
        except Exception as error:
            if guarded:
                caller.recover()
                caller.execute(_UNDO, None)
            raise _named(error) from error


async def append_async(store: Store, connection: Any, running: Steps[T], guarded: bool) -> T:
    """Run the steps on a psycopg AsyncConnection, or an SQLAlchemy AsyncConnection or AsyncSession."""
    async with callers.asynchronous(store, connection) as caller:
        if not _is_known(store, caller):
            _check_identity(store, caller, await caller.execute(store.blocks["outbox.identity"], {}))
        guarded = guarded and store.errors_abort
        if guarded:
            await caller.execute(_SAVE, None)
        try:
            block, params = next(running)
            while True:
                block, params = running.send(await caller.execute(store.blocks[block], params))
        except StopIteration as end:
            if guarded:
                await caller.execute(_KEEP, None)
            return end.value  # type: ignore[no-any-return]
        except Exception as error:
            if guarded:
                await caller.recover()
                await caller.execute(_UNDO, None)
            raise _named(error) from error


def _is_known(store: Store, caller: Caller) -> bool:
    return caller.key is not None and store in _known.get(caller.key, ())


def _check_identity(store: Store, caller: Caller, found: Sequence[Any] | None) -> None:
    """Raise unless the caller's database holds this log: another log there would silently get the event.

    Checked once per connection.
    """
    if found is None or any(part is None for part in found):
        raise SchemaMissing("The caller's database has no Penstock schema.")
    if not store.is_own(found):
        raise WrongDatabase(f"The connection belongs to another database than the log at {store.safe_url}.")
    if caller.key is not None:
        _known.setdefault(caller.key, WeakSet()).add(store)


def _named(error: Exception) -> Exception:
    if type(error).__name__ in ("UndefinedTable", "InvalidSchemaName") or "no such table: penstock" in str(error):
        return SchemaMissing("The caller's database has no Penstock schema.")
    return error


def run(tx: Transaction, running: Steps[T]) -> T:
    """Run the same steps in Penstock's own transaction."""
    try:
        block, params = next(running)
        while True:
            block, params = running.send(tx.neutral(block, params))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
