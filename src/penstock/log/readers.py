"""Streaming readers of a group: what they claim, and how an operator takes it back."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.event import check_key
from penstock.core.lease import Idle, LeaseRow, Passed
from penstock.core.limits import LEASE_SECONDS_MOST, READER_FIRST_SECONDS
from penstock.errors import MissingField
from penstock.log import checking
from penstock.log.operating import Moved
from penstock.log.transacting import Transacting
from penstock.stores import readers
from penstock.stores.base import Store
from penstock.stores.readers import Reader

_PREFIX = "reader:"  # as it stands in `claimed_by`


class Reading(Transacting):
    """What an operator sees of readers, and does to them."""

    def readers(self, stream: str, group: str) -> list[Reader]:
        """The readers that hold claims of this group."""
        return self._run(lambda tx: readers.listed(tx, stream, group), write=False)

    def release_reader(
        self, stream: str, group: str, reader: str, *, dry_run: bool = False, by: str | None = None
    ) -> Moved:
        """Give back what a reader holds. Its query, if it still runs, fails with `ClaimLost`."""
        known = check_key(reader, "reader")
        if known is None:
            raise MissingField("reader is missing.")
        name = known.removeprefix(_PREFIX)
        count = self._run(lambda tx: readers.release(tx, stream, group, name, dry_run=dry_run, by=checking.author(by)))
        return Moved(count, dry_run)


class ReaderClaims(Transacting):
    """The claims of one group's readers, for those who read it as a stream."""

    def __init__(self, store: Store, stream: str, group: str) -> None:
        super().__init__(store)
        self._stream = stream
        self._group = group

    def next(self, reader: str, *, after: int, limit: int, upto: int | None) -> int | Idle:
        """The number of the next claim, or when to come back.

        The very first claim is held for minutes only, until its contents are asked for: a query that dies before it has
        written anything down comes back under another name.
        """
        seconds = LEASE_SECONDS_MOST if after else READER_FIRST_SECONDS
        while True:
            found = self._run(
                lambda tx: readers.next_claim(
                    tx,
                    self._stream,
                    self._group,
                    reader,
                    after=after,
                    limit=limit,
                    lease_seconds=seconds,
                    upto=upto,
                )
            )
            if not isinstance(found, Passed):
                return found

    def settle_upto(self, reader: str, number: int) -> list[int]:
        """Every claim up to this one is done. Returns the claims of which something was lost before."""
        return self._run(lambda tx: readers.settle_upto(tx, self._stream, self._group, reader, number))

    def hold(self, reader: str, number: int, *, skip_lost: bool = False) -> list[LeaseRow]:
        """What a claim contains, held for days from now on."""
        return self._run(lambda tx: readers.hold(tx, reader, number, LEASE_SECONDS_MOST, skip_lost=skip_lost))

    def check_held(self, tokens: Mapping[int, int]) -> None:
        """`ClaimLost` unless every lease is still the reader's."""
        self._run(lambda tx: readers.check_held(tx, tokens), write=False)

    def horizon(self) -> int:
        """Where the log ends now, for a query that takes what is there and ends."""
        return self._run(lambda tx: tx.horizon(), write=False)
