"""Claims with a key: who asks again with the same key gets the same leases, not more of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import orjson

from penstock.core.lease import Idle, LeaseRow, Passed
from penstock.errors import KeyReused, LeaseLost
from penstock.log import checks, keep, release
from penstock.log.claim import claim_in
from penstock.log.transact import transact
from penstock.stores.base import Conflict, Store, Transaction

_KEPT: Final = timedelta(days=1)  # how long a key is remembered; its leases have ended long before

Take = Callable[[Transaction], Sequence[LeaseRow] | Idle]


def claim(
    store: Store,
    principal: str,
    key: str,
    stream: str,
    group: str,
    limit: int,
    claimed_by: str,
    lease_seconds: float | None,
) -> LeaseRow | Idle:
    """Claim from a group, once for each key of a principal."""

    def take(tx: Transaction) -> Sequence[LeaseRow] | Idle:
        while isinstance(found := claim_in(tx, stream, group, limit, claimed_by, lease_seconds), Passed):
            pass
        return [found] if isinstance(found, LeaseRow) else found

    found = once(store, principal, key, [stream, group, limit, claimed_by, lease_seconds], take)
    return found if isinstance(found, Idle) else found[0]


def once(store: Store, principal: str, key: str, request: Any, take: Take) -> Sequence[LeaseRow] | Idle:
    """Run a claim and remember its leases under the key, in one transaction.

    Asked again, return those leases that are still held; `LeaseLost` if all have ended. A claim that found nothing
    leaves no trace: the key can be used again.
    """
    name = {"principal": principal, "key": checks.required_key(key, "Idempotency-Key")}
    asked = orjson.dumps(request).decode()

    def work(tx: Transaction) -> Sequence[LeaseRow] | Idle:
        now = tx.now()
        tx.run("claim_key.prune", before=now - _KEPT)
        if not tx.rows("claim_key.take", request=asked, now=now, **name):
            return _again(tx, name, asked)
        found = take(tx)
        if isinstance(found, Idle) or not found:
            tx.run("claim_key.forget", **name)
        else:
            tx.run("claim_key.note", leases=orjson.dumps([one.id for one in found]).decode(), **name)
        return found

    return transact(store, work)


def _again(tx: Transaction, name: dict[str, str], asked: str) -> list[LeaseRow]:
    row = tx.one("claim_key.find", **name)
    if row is None:  # forgotten since: claim
        raise Conflict("the key was forgotten")
    if row.request != asked:
        raise KeyReused(f"The Idempotency-Key {name['key']!r} belongs to another request.")
    found = [keep.find(tx, one) for one in orjson.loads(row.leases)]
    held = []
    for lease in found:
        try:
            release.check_open(tx, lease)
        except LeaseLost:
            continue
        held.append(keep.row_of(lease))
    if not held:
        raise LeaseLost("What was claimed with this Idempotency-Key has ended.")
    return held
