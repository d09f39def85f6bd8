"""Appending from many tasks at once: see `stores.staging`."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence

from penstock.core.event import NewEvent
from penstock.errors import PenstockError
from penstock.log.ids import uuid7
from penstock.log.transacting import Transacting
from penstock.stores import staging
from penstock.stores.base import Store
from penstock.stores.staging import Staged

logger = logging.getLogger("penstock")


class Staging(Transacting):
    """One batch of one writer, on its way into a stream."""

    def __init__(self, store: Store, stream: str, writer: str, batch: int) -> None:
        super().__init__(store)
        self._stream = stream
        self._writer = writer
        self._batch = batch

    def stage(self, chunks: Iterable[Sequence[NewEvent]]) -> Staged:
        """Put the events of one task attempt aside, a chunk in a transaction: nothing is held while a chunk is made."""
        attempt = uuid7()
        events = 0
        for chunk in chunks:
            if not chunk:
                continue
            if not events:
                self._run(lambda tx: staging.begin(tx, attempt, self._writer, self._batch))
            self._stage(attempt, chunk)
            events += len(chunk)
        return Staged(attempt, events)

    def _stage(self, attempt: uuid.UUID, chunk: Sequence[NewEvent]) -> None:
        self._run(lambda tx: staging.stage(tx, attempt, chunk))

    def commit(self, named: Sequence[Staged], *, key: str | None = None) -> bool:
        """Append what these attempts have staged, all of it or nothing; False if it was appended before.

        `key` stands for the writer where the batch is known by another name than its attempts.
        """
        counting = [one for one in named if one.events]
        done = self._run(
            lambda tx: staging.commit(tx, self._stream, key or self._writer, self._batch, counting),
        )
        try:
            self._run(lambda tx: staging.drop_leftovers(tx, self._writer, self._batch))
        except PenstockError as error:  # the events are appended; the next commit drops what is left over
            logger.warning("leftovers of a write stay for now: %s", error)
        return done

    def abort(self, named: Sequence[Staged]) -> None:
        """Drop what these attempts have staged."""
        self._run(lambda tx: staging.drop(tx, [one.attempt for one in named if one.events]))

    def abort_all(self) -> None:
        """Drop what any attempt has staged for this batch; who is still staging is refused."""
        self._run(lambda tx: staging.drop_leftovers(tx, self._writer, self._batch))
