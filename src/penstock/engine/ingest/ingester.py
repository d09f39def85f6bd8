"""The loop of one source: read a batch, store it with its position, acknowledge it.

While a batch is being stored, by a thread of its own, the next one is read and becomes events.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from penstock.core.codec import error_code
from penstock.core.ingested import EntryBatch, FileBatch, Ingested, Made
from penstock.core.log_fields import about
from penstock.core.observe import BatchOvertaken, EntriesIngested, Observers, SourceAway, StoreAway
from penstock.declare.ingest import Ingest
from penstock.declare.source import Reader, SourceBatch
from penstock.engine.outage import PAUSE_SECONDS, Outage, database, patiently
from penstock.errors import AWAY, PenstockError, SourceUnavailable
from penstock.log.ingest import Overtaken
from penstock.log.log import Log

logger = logging.getLogger("penstock")
_READ_SECONDS = 0.2  # that a read may wait for something new
_MEANWHILE_SECONDS = 0.001  # the same, while something is being stored
_NOTHING = Ingested()


class _Next(NamedTuple):
    batch: SourceBatch
    made: Made


class _Storing(NamedTuple):
    batch: SourceBatch
    done: Future[Ingested | None]


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
        self._storing: _Storing | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"penstock-{self.name}")

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
            fields = about("source_failed", self.name, code=error_code(error))
            logger.error("%s: this source is not read any more: %s", self.name, said, extra=fields)
            if not isinstance(error, PenstockError):
                logger.debug("%s", self.name, exc_info=error)
            self.failure = said
            self.drained = True
        finally:
            self._thread.shutdown()

    def _session(self) -> None:
        """Read with one connection, until it breaks or we are stopped."""
        reader: Reader | None = None
        try:
            reader = self.ingest.source.open(self._log.ingests)
            while not self._stopping.is_set():
                if self._working.is_set():
                    self._turn(reader)
                elif self._settled(reader):
                    self._stopping.wait(_READ_SECONDS)
            if self._settled(reader):
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
            if self._storing is not None:  # it is not acknowledged, and recognised when it comes again
                self._stored()
            if reader is not None:
                with suppress(Exception):
                    reader.close()

    def _wait(self) -> None:
        self._stopping.wait(self._pause)
        self._pause = min(2 * self._pause, PAUSE_SECONDS[1])

    def _turn(self, reader: Reader) -> None:
        """Read one batch, acknowledge the one before it, and begin to store it."""
        batch = reader.read(_READ_SECONDS if self._storing is None else _MEANWHILE_SECONDS)
        if self._source_away:
            self._outage.is_over(self.name)
        if self._store_away:
            database.is_over(self.name)
        self._source_away = self._store_away = False
        self._pause = PAUSE_SECONDS[0]
        if batch is None:
            if self._storing is not None:
                self._settled(reader)
                return
            reader.rest(idle=True)
            self.drained = reader.drained()
            return
        self.drained = False
        made = self.ingest.made_of(reader.source, batch.entries)
        if self._settled(reader, _Next(batch, made)) and isinstance(batch.mark, FileBatch):
            self._settled(reader)  # what is to be read next depends on it

    def _settled(self, reader: Reader, following: _Next | None = None) -> bool:
        """Wait for what is being stored, begin with what follows, and acknowledge.

        False if it was not stored; then what follows is not either, so that order is kept.
        """
        before = self._storing
        done = _NOTHING if before is None else self._stored()
        if done is None:
            for one in (before, following):
                if one is not None and not self._stopping.is_set():
                    reader.overtaken(one.batch)
            return False
        if following is not None:
            future = self._thread.submit(self._store, reader.source, following.batch, following.made)
            self._storing = _Storing(following.batch, future)
        if before is not None:
            reader.acknowledge(before.batch, done)
            reader.rest(idle=False)
        return True

    def _stored(self) -> Ingested | None:
        """Wait for what is being stored; None if it was not."""
        assert self._storing is not None
        (batch, future), self._storing = self._storing, None
        try:
            done = future.result()
        except Overtaken as error:
            logger.info("%s: a batch was not stored: %s", self.name, error)
            self.observers.emit(BatchOvertaken(self.name))
            return None
        if done is not None:
            self.observers.emit(EntriesIngested(self.name, done, batch.gone))
        return done

    def _store(self, source: str, batch: SourceBatch, made: Made) -> Ingested | None:
        """Commit a batch; None when stopped."""
        mark, ingests = batch.mark, self._log.ingests
        if isinstance(mark, EntryBatch) and not batch.entries:
            return _NOTHING

        def store() -> Ingested:
            if isinstance(mark, FileBatch):
                return ingests.store_files(mark)
            if isinstance(mark, EntryBatch):
                return ingests.store_entries(source, mark, made)
            return ingests.store_moves(source, mark, made)

        return patiently(store, self.name, self.observers, self._stopping)
