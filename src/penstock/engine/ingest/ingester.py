"""The loop of one source: read a batch, store it with its position, acknowledge it."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from penstock.core.ingested import EntryBatch, FileBatch, Ingested
from penstock.core.observe import BatchOvertaken, EntriesIngested, Observers, SourceAway, StoreAway
from penstock.declare.ingest import Ingest
from penstock.declare.source import Reader, SourceBatch
from penstock.engine.outage import PAUSE_SECONDS, Outage, database, patiently
from penstock.errors import AWAY, PenstockError, SourceUnavailable
from penstock.log.ingest import Overtaken
from penstock.log.log import Log

logger = logging.getLogger("penstock")
_READ_SECONDS = 0.2  # that a read may wait for something new
_NOTHING = Ingested()


class Ingester:
    """Reads one source until it is stopped. An outage of the source or of the database is waited out.

    Any other error ends this source, and no other: `failure` says why.
    """

    def __init__(self, log: Log, ingest: Ingest, observers: Observers, stopping: threading.Event) -> None:
        self.ingest = ingest
        self.name = ingest.name
        self.observers = observers
        self.failure: str | None = None
        self.drained = False  # as of the last read
        self._log = log
        self._stopping = stopping
        self._working = threading.Event()
        self._working.set()
        self._outage = Outage(what=ingest.source.name)
        self._pause = PAUSE_SECONDS[0]
        self._source_away = self._store_away = False

    def quiet(self, quiet: bool) -> None:
        """Read nothing new; False to go on."""
        if quiet:
            self._working.clear()
        else:
            self._working.set()

    def run(self) -> None:
        """Read until stopped, or until the source fails for good."""
        try:
            while not self._stopping.is_set():
                self._session()
        except Exception as error:
            said = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            logger.error("%s: this source is not read any more: %s", self.name, said)
            if not isinstance(error, PenstockError):
                logger.debug("%s", self.name, exc_info=error)
            self.failure = said
            self.drained = True

    def _session(self) -> None:
        """Read with one connection, until it breaks or we are stopped."""
        reader: Reader | None = None
        try:
            reader = self.ingest.source.open(self._log.ingests)
            while not self._stopping.is_set():
                if self._working.is_set():
                    self._turn(reader)
                else:
                    self._stopping.wait(_READ_SECONDS)
            if reader is not None:
                reader.rest(idle=True)
        except SourceUnavailable as error:
            self.drained = False
            self._source_away = True
            self.observers.emit(SourceAway(self.name, error))
            self._outage.goes_on(self.name, error)
            self._wait()
        except AWAY as error:  # in what the reader asks of the log by itself
            self.drained = False
            self.observers.emit(StoreAway(self.name, error))
            self._store_away = True
            database.goes_on(self.name, error)
            self._wait()
        finally:
            if reader is not None:
                with suppress(Exception):
                    reader.close()

    def _wait(self) -> None:
        self._stopping.wait(self._pause)
        self._pause = min(2 * self._pause, PAUSE_SECONDS[1])

    def _turn(self, reader: Reader) -> None:
        """Read, store and acknowledge one batch."""
        batch = reader.read(_READ_SECONDS)
        if self._source_away:
            self._outage.is_over(self.name)
        if self._store_away:
            database.is_over(self.name)
        self._source_away = self._store_away = False
        self._pause = PAUSE_SECONDS[0]
        if batch is None:
            reader.rest(idle=True)
            self.drained = reader.drained()
            return
        self.drained = False
        done = self._store(reader, batch)
        if done is not None:
            self.observers.emit(EntriesIngested(self.name, done, batch.gone))
            reader.acknowledge(batch, done)
            reader.rest(idle=False)

    def _store(self, reader: Reader, batch: SourceBatch) -> Ingested | None:
        """Commit a batch; None if somebody else went on, or when stopped."""
        mark = batch.mark
        if isinstance(mark, EntryBatch) and not batch.entries:
            return _NOTHING
        made = self.ingest.made_of(reader.source, batch.entries)
        ingests = self._log.ingests

        def store() -> Ingested:
            if isinstance(mark, FileBatch):
                return ingests.store_files(mark)
            if isinstance(mark, EntryBatch):
                return ingests.store_entries(reader.source, mark, made)
            return ingests.store_moves(reader.source, mark, made)

        try:
            return patiently(store, self.name, self.observers, self._stopping)
        except Overtaken as error:
            logger.info("%s: a batch was not stored: %s", self.name, error)
            self.observers.emit(BatchOvertaken(self.name))
            reader.overtaken(batch)
            return None
