"""The reader of a Valkey stream: its own pending entries first, what idles at others now and then, and new ones."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.connect.entry_columns import number_of, of_entries
from penstock.connect.valkey import connect
from penstock.core import limits
from penstock.core.entry import Entry, first_id_of
from penstock.core.entry_ids import EntryId, parse, parse_all
from penstock.core.ingested import EntryBatch, Ingested
from penstock.declare.source import RawEntries, SourceBatch
from penstock.errors import InvalidSource, MissingDependency, SourceUnavailable
from penstock.log.ingest import Ingests

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.connect.valkey_stream import ValkeyStream

logger = logging.getLogger("penstock")
_FIRST = 64  # entries in the first read: nobody knows how large they are
_LOOKS = 2  # for idle entries in the time after which they idle
_BLOCK_SHARE = 8  # a read waits for so small a part of the idle time: the age of a batch counts from before it
_ALL = b"0-0"
_READ_BYTES = 2**20  # at once: after every call to the network this thread may have to wait for the other one


class ValkeyReader:
    """A consumer of the group."""

    def __init__(self, options: ValkeyStream, url: str, ingests: Ingests) -> None:
        self.source = options.source
        self._options = options
        self._ingests = ingests
        self._history: bytes | None = _ALL  # up to where our own pending entries were read; None: all of them
        self._claimed = _ALL  # up to where idle entries were taken over in this round
        self._next_claim = 0.0
        self._next_forget = 0.0
        self._count = min(_FIRST, options.batch)
        self._noted: list[int] = []  # acknowledged ranges of which the log is not told yet
        try:
            with self._asking():
                self._client = connect(url, options.timeout_seconds, socket_read_size=_READ_BYTES)
                for command in ("XREADGROUP", "XAUTOCLAIM", "XPENDING"):  # a mapping would lose repeated fields
                    self._client.set_response_callback(command, lambda answer, **_: answer)
        except ImportError as error:
            raise MissingDependency(
                "Reading from Valkey needs the package valkey: pip install penstock[valkey]."
            ) from error
        except ValueError:  # its text may hold a piece of the URL
            raise InvalidSource("The URL of the Valkey server cannot be read.") from None
        try:
            self._create_group()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Whatever the server or the network does is a `SourceUnavailable`."""
        import valkey

        try:
            yield
        except (valkey.ValkeyError, OSError) as error:
            raise SourceUnavailable(f"{self._options.name}: {str(error) or type(error).__name__}") from error

    def _create_group(self) -> None:
        """Create the group. One that vanished begins anew, whatever `start` says: nothing is lost, and what comes again
        is recognised."""
        known = self._ingests.is_known(self.source)
        where = "$" if self._options.start == "end" and not known else "0"
        if self._new_group(where) and known:
            logger.warning("%s: the group %s had vanished and is read anew", self._options.name, self._options.group)
        if not known:
            self._ingests.add(self.source)

    def _new_group(self, where: str) -> bool:
        try:
            self._ask("XGROUP CREATE", self._options.stream, self._options.group, where, "MKSTREAM")
        except SourceUnavailable as error:
            if not str(error.__cause__).startswith("BUSYGROUP"):
                raise
            return False
        return True

    def _ask(self, *command: Any) -> Any:
        with self._asking():
            return self._client.execute_command(*command)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(self, seconds: float) -> SourceBatch | None:
        """Return own pending entries, then idle ones of others, then new ones."""
        if self._history is not None:
            batch = self._own()
            if batch is not None:
                return batch
        if time.monotonic() >= self._next_claim:
            batch = self._idle()
            if batch is not None:
                return batch
        began = _now()
        wait = min(seconds, self._options.min_idle_seconds / _BLOCK_SHARE, self._options.timeout_seconds / 2)
        return self._batch(self._read(b">", block=max(1, int(wait * 1000))), began)

    def _own(self) -> SourceBatch | None:
        """Return what was delivered to this consumer before, and never acknowledged."""
        assert self._history is not None
        began = _now()
        found = self._read(self._history)
        self._history = found[-1][0] if found else None
        return self._batch(found, began)

    def _read(self, after: bytes, block: int | None = None) -> list[Any]:
        options = self._options
        waiting = () if block is None else ("BLOCK", block)
        who = ("GROUP", options.group, options.consumer, "COUNT", self._count)
        answer = self._ask("XREADGROUP", *who, *waiting, "STREAMS", options.stream, after)
        if isinstance(answer, dict):  # the protocol's third version
            return next(iter(answer.values()), [])
        return answer[0][1] if answer else []

    def _idle(self) -> SourceBatch | None:
        """Take over what has been pending for too long, whoever it was delivered to."""
        options = self._options
        began = _now()
        idle = max(1, int(options.min_idle_seconds * 1000))
        who = (options.stream, options.group, options.consumer)
        after, found, *deleted = self._ask("XAUTOCLAIM", *who, idle, self._claimed, "COUNT", self._count)
        self._claimed = after
        if after == _ALL:
            self._next_claim = time.monotonic() + options.min_idle_seconds / _LOOKS
        return self._batch(found, began, len(deleted[0]) if deleted else 0)

    def _batch(self, found: list[Any], began: float, gone: int = 0) -> SourceBatch | None:
        """Return what was read; entries whose body was deleted are acknowledged at once: there is nothing to store."""
        deleted = [one[0] for one in found if one is not None and one[1] is None]
        if deleted:
            self._acknowledge(deleted)
        kept = [one for one in found if one is not None and one[1] is not None]
        if not kept and not deleted and not gone:
            return None
        self._size(kept)
        latest = began + self._options.min_idle_seconds / 2
        ids = parse_all(one[0] for one in kept)
        mark = EntryBatch(ids, lambda: _now() < latest, self._noted if kept else ())
        if kept:
            self._noted = []
        entries = RawEntries(kept, self._entry, of_entries(self.source, self._options.type, ids))
        return SourceBatch(entries, mark, gone + len(deleted))

    def _size(self, found: list[Any]) -> None:
        """Read next about as many bytes as fit into a batch."""
        if found:
            size = sum(map(len, chain.from_iterable(pairs for _, pairs in found)))
            fits = limits.INGEST_BATCH_BYTES // max(1, size // len(found))
            self._count = max(1, min(self._options.batch, fits, 4 * self._count))

    def _entry(self, found: tuple[bytes, list[bytes]]) -> Entry:
        entry_id, pairs = found
        fields = (*zip(pairs[::2], pairs[1::2], strict=True),)
        value = key = None
        for name, content in fields:
            if name == b"payload":
                value = content
            elif name == b"key":
                key = content
        at = parse(entry_id)
        number = number_of(*at)
        event_id = None if number is None else uuid.UUID(int=first_id_of(self.source, "") + number)
        return Entry(str(at), key, value, fields=fields, timestamp=_time(at.ms), event_id=event_id)

    # --- after the commit ----------------------------------------------------------------------------------------

    def acknowledge(self, batch: SourceBatch, ingested: Ingested) -> None:
        """Acknowledge; the log is told with the next batch, or when there is time."""
        if isinstance(batch.entries, RawEntries) and batch.entries:
            self._acknowledge([one[0] for one in batch.entries.raw])
            self._noted += ingested.ranges

    def _acknowledge(self, ids: Iterable[bytes]) -> None:
        self._ask("XACK", self._options.stream, self._options.group, *ids)

    def overtaken(self, batch: SourceBatch) -> None:
        """Look which of the entries are still ours, and take fewer at once: they may have taken too long."""
        if isinstance(batch.mark, EntryBatch):
            self._noted += batch.mark.acknowledged
        self._history = _ALL
        self._count = max(1, self._count // 2)

    def rest(self, idle: bool) -> None:
        """Tell the log what was acknowledged, and forget old entries."""
        if idle and self._noted:
            self._ingests.acknowledge(self._noted)
            self._noted = []
        if time.monotonic() >= self._next_forget:
            more = self._ingests.forget(self.source, self._options.remember_days, self._is_pending)
            self._next_forget = 0.0 if more else time.monotonic() + limits.INGEST_FORGET_SECONDS

    def _is_pending(self, low: EntryId, high: EntryId) -> bool:
        return bool(self._ask("XPENDING", self._options.stream, self._options.group, str(low), str(high), 1))

    def drained(self) -> bool:
        """Whether nothing was found just now, and nothing is pending at any consumer."""
        return self._history is None and not self._ask("XPENDING", self._options.stream, self._options.group)[0]

    def close(self) -> None:
        """Disconnect."""
        self._client.close()


def _time(ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # an id that somebody chose
        return None


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# Time that goes on while the machine sleeps: others may take entries over then.
_now: Callable[[], float] = _boottime if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
