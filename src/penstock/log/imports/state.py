"""Store keyed state that comes with an import, while its group is paused: the same values again change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.imported import Target
from penstock.log import keyed_state
from penstock.log.claim import look_around
from penstock.log.imports import record
from penstock.log.imports.record import Import
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def store_state(store: Store, one: Import, target: Target, values: Mapping[str, Mapping[str, Any]]) -> None:
    """Store values by key and name in one transaction."""

    def work(tx: Transaction) -> None:
        known = record.locked(tx, one)
        group, _ = look_around(tx, target.stream, target.group)
        record.check_paused(group, known)
        keyed_state.write(tx, group.group_id, values, {}, tx.now())

    transact(store, work)
