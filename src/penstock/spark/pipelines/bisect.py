"""Find the poisonous events of a batch: split it until they are alone; all others succeed.

Where one Spark job can tell all its pieces that fail (see `read_once`), every round is one Spark job over what is still
suspect. Otherwise the function sees every piece as a batch of its own, a few of them side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from penstock.core.lease import Failure, LeaseRow, split_released
from penstock.core.limits import PIPELINE_JOBS
from penstock.spark.arrow import parts
from penstock.spark.causes import AWAY
from penstock.spark.pipelines.pieces import Span, around, evenly, pieces_of, span_of
from penstock.spark.pipelines.sinks.base import Aside
from penstock.spark.pipelines.spark_jobs import Cause, SparkJobFailed

SIDE_BY_SIDE = 4  # Spark jobs
_PARTITIONS = 8  # of a Spark job over one piece: the one that fails is the next piece
_CUTS = 4  # pieces, if it is not known where it failed
_PIECES = 16  # of a Spark job that tells all pieces that fail
_TRIES = 3  # of an event alone, if its tasks are lost without a cause


@dataclass(slots=True)
class Result:
    """What a Spark job staged, the events that the function itself failed, and the pieces that were not done."""

    aside: list[Aside] = field(default_factory=list)
    failed: dict[int, Failure] = field(default_factory=dict)
    skipped: dict[int, Cause | None] = field(default_factory=dict)  # by partition: why, if known
    once: bool = False  # each partition holds the results of its own piece: see `read_once`


@dataclass(slots=True)
class Worked:
    """The result of a lease."""

    aside: list[Aside] = field(default_factory=list)
    failed: dict[int, Failure] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)  # members that were not reached
    members: list[int] = field(default_factory=list)  # offsets; known only if something failed
    away: Failure | None = None  # why it stopped, if no event is to blame

    @property
    def nothing_done(self) -> bool:
        return bool(self.released) and len(self.released) == len(self.members)

    def back(self, row: LeaseRow) -> tuple[int | None, frozenset[int]]:
        """Return where the finished part of a range ends, and which members before that are released."""
        if row.offsets is not None or not self.released:
            return row.high, frozenset(self.released)
        assert row.low is not None and row.high is not None
        return split_released(self.members, self.released, row.low, row.high, self.failed.keys())


# Runs one Spark job: takes part of a lease, its partitions, and how many tasks may fail.
SparkJob = Callable[[LeaseRow, Sequence[LeaseRow], int], Result]


class Isolation:
    """The search for what fails in one lease."""

    def __init__(
        self,
        row: LeaseRow,
        spark_job: SparkJob,
        members_of: Callable[[LeaseRow], list[int]],
        stopped: Callable[[], bool],
        side_by_side: int = SIDE_BY_SIDE,
    ) -> None:
        self._row = row
        self._spark_job = spark_job
        self._members_of = members_of
        self._stopped = stopped
        self._side_by_side = side_by_side
        self._worked = Worked()
        self._waiting: list[Span] = []  # suspect, and not done yet
        self._together = False  # one Spark job tells all its pieces that fail
        self._given_up = False
        self._hints: dict[Span, Span] = {}  # of suspects: the part that failed
        self._rounds = 0
        self._tries: Counter[int] = Counter()
        self.spark_jobs = 0

    def run(self, partitions: int, known: SparkJobFailed | None = None) -> Worked:
        """Run a lease; if that fails, or is `known` to fail, split it until the culprits are alone."""
        pieces = parts(self._row, partitions)
        self._together = known is not None
        try:
            if known is not None:
                raise known
            result = self._start(self._row, pieces)
        except SparkJobFailed as error:
            self._learn_members()
            self._judge((0, len(self._worked.members)), pieces, error)
        else:
            if result.skipped:
                self._learn_members()
            self._take([span_of(one, self._worked.members) for one in pieces], result)
        while self._waiting and self._goes_on():
            if self._together:
                self._run_together()
            else:
                self._run_side_by_side()
        self._worked.released = {self._worked.members[place] for span in self._waiting for place in range(*span)}
        return self._worked

    def _learn_members(self) -> None:
        self._worked.members = self._members_of(self._row)

    def _goes_on(self) -> bool:
        enough = self.spark_jobs >= PIPELINE_JOBS
        return not (enough or self._given_up or self._worked.away is not None or self._stopped())

    def _start(self, piece: LeaseRow, pieces: Sequence[LeaseRow]) -> Result:
        self.spark_jobs += 1
        return self._spark_job(piece, pieces, 1 if piece.members == 1 else 0)

    def _pieces(self, spans: Sequence[Span]) -> list[LeaseRow]:
        return pieces_of(self._row, self._worked.members, spans)

    # --- rounds --------------------------------------------------------------------------------------------------

    def _run_together(self) -> None:
        """Run one Spark job over the first suspects, all of them cut."""
        self._rounds += 1
        suspects, self._waiting = self._waiting[: _PIECES // 2], self._waiting[_PIECES // 2 :]
        spans = [part for one in suspects for part in self._cut(one, _PIECES // len(suspects))]
        try:
            result = self._start(self._row, self._pieces(spans))
        except SparkJobFailed as error:
            self._waiting = sorted([*suspects, *self._waiting])
            self._together = False
            self._blames_nobody(error)
        else:
            self._take(spans, result)

    def _cut(self, suspect: Span, count: int) -> list[Span]:
        """Cut around the rows that were at work when it failed, if they are known.

        There may be further culprits behind those, so what follows is cut into more pieces with every round.
        """
        hint = self._hints.pop(suspect, None)
        if hint is None or hint == suspect:
            return evenly(suspect, max(2, count))
        before, behind = (suspect[0], hint[0]), (hint[1], suspect[1])
        return [
            *evenly(before, max(1, count // 8)),
            *evenly(hint, max(2, count)),
            *evenly(behind, min(count, 2**self._rounds)),
        ]

    def _run_side_by_side(self) -> None:
        """Run Spark jobs over suspects, a few at a time, from left to right."""
        running: dict[Future[Result], tuple[Span, list[Span]]] = {}
        with ThreadPoolExecutor(self._side_by_side, thread_name_prefix="penstock-search") as pool:
            while running or self._waiting:
                while self._waiting and len(running) < self._side_by_side and self._goes_on() and not self._together:
                    span = self._waiting.pop(0)
                    spans = evenly(span, _PARTITIONS)
                    (piece,) = self._pieces([span])
                    self.spark_jobs += 1
                    tolerated = 1 if piece.members == 1 else 0
                    running[pool.submit(self._spark_job, piece, self._pieces(spans), tolerated)] = span, spans
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    span, spans = running.pop(done)
                    try:
                        self._take(spans, done.result())
                    except SparkJobFailed as error:
                        self._judge(span, self._pieces(spans), error)

    # --- judgements ----------------------------------------------------------------------------------------------

    def _take(self, spans: Sequence[Span], result: Result) -> None:
        """Keep what a Spark job did; what it skipped is suspect, or to blame if it is one event."""
        self._worked.aside += result.aside
        self._worked.failed |= result.failed
        for place, cause in result.skipped.items():
            self._together = True
            first, last = spans[place]
            failure = None if cause is None else cause.failure
            if failure is not None and failure.code in AWAY:
                self._worked.away = failure
            if last - first == 1 and self._is_to_blame(first, failure):
                assert failure is not None
                self._worked.failed[self._worked.members[first]] = failure
            elif last > first:
                self._waiting.append((first, last))
                if cause is not None and cause.rows is not None and first + cause.rows[0] < last:
                    low, high = (first + row for row in cause.rows)
                    self._hints[first, last] = low, min(high, last)
        self._waiting.sort()

    def _is_to_blame(self, place: int, failure: Failure | None) -> bool:
        """Whether an event alone failed by itself. A process may die for other reasons, so it must die twice."""
        if self._worked.away is not None:
            return False
        self._tries[place] += 1
        if failure is None:  # lost to a twin, or Spark does not say
            self._given_up = self._tries[place] >= _TRIES
            return False
        return failure.code != "process_died" or self._tries[place] > 1

    def _judge(self, span: Span, pieces: Sequence[LeaseRow], error: SparkJobFailed) -> None:
        """Blame an event that was alone in a Spark job that failed; cut what was not."""
        first, last = span
        if self._blames_nobody(error) or self._stopped():
            self._waiting.append(span)
        elif last - first == 1:
            self._worked.failed[self._worked.members[first]] = error.failure
        else:
            known = error.partition is not None and len(pieces) > 1
            failed = span_of(pieces[error.partition or 0], self._worked.members) if known else None
            self._waiting += around(span, failed, _CUTS)
        self._waiting.sort()

    def _blames_nobody(self, error: SparkJobFailed) -> bool:
        if error.away:
            self._worked.away = error.failure
        self._given_up = self._given_up or error.lost
        return error.away or error.lost
