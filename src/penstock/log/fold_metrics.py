"""Fold numbers with age: minutes become ten minutes, then hours, and are forgotten at last. No count is lost."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from penstock.core import limits
from penstock.core.timeline import DAY, HOUR, MINUTE, TEN_MINUTES, start_of
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction


class _Fold(NamedTuple):
    """Rows of one width, which become rows of another when they are so old; a transaction takes a slice of them."""

    seconds: int
    width: int
    days: int
    slice_seconds: int


_FOLDS: Final = (
    _Fold(MINUTE, TEN_MINUTES, limits.METRIC_MINUTES_DAYS, HOUR),
    _Fold(TEN_MINUTES, HOUR, limits.METRIC_TEN_MINUTES_DAYS, DAY // 2),
)


def fold(store: Store, steps: int = limits.FOLD_STEPS) -> None:
    """Fold what has become old enough, once an hour; in short transactions, and the rest next time."""
    now = look(store, _due)
    if now is None:
        return
    for one in _FOLDS:
        while steps and transact(store, partial(_step, one=one, now=now)):
            steps -= 1
    if steps:
        transact(store, partial(_forget, now=now))


def _due(tx: Transaction) -> datetime | None:
    now, last = tx.now(), tx.one("metric.last")
    folded = None if last is None else last.folded_at
    return None if folded is not None and start_of(folded, HOUR) == start_of(now, HOUR) else now


def _step(tx: Transaction, one: _Fold, now: datetime) -> bool:
    """Fold the oldest slice; returns whether there was any."""
    if tx.one("metric.turn") is None:
        return False
    before = start_of(now - timedelta(days=one.days), HOUR)
    row = tx.one("fold.oldest", seconds=one.seconds)
    if row is None or row.oldest_at is None or row.oldest_at >= before:
        return False
    low = start_of(row.oldest_at, one.slice_seconds)
    high = min(low + timedelta(seconds=one.slice_seconds), before)
    for block in ("fold.metric", "fold.rounds"):
        tx.run(block, seconds=one.seconds, width=one.width, low=low, high=high)
    return True


def _forget(tx: Transaction, now: datetime) -> None:
    if tx.one("metric.turn") is not None:
        tx.run("fold.forget", before=start_of(now - timedelta(days=limits.METRIC_DAYS), HOUR))
        tx.run("fold.folded", now=now)
