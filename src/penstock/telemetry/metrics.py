"""An observer that counts every transition of this process, and the port on which Prometheus asks for the counts.

Per lease, never per event; by stream and group, never by key, id, payload or error.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from penstock.core.lease import Settled
from penstock.core.observe import (
    BatchOvertaken,
    CircuitClosed,
    CircuitOpened,
    Claimed,
    EntriesIngested,
    EventsAppended,
    JobsRemoved,
    LeaseEnded,
    LeaseGone,
    LeasesExpired,
    Observed,
    Operated,
    ProcessesDied,
    RoundEnded,
    RunBegan,
    RunEnded,
    RunProgressed,
    SchedulesRan,
    SourceAway,
    StoreAway,
    everyone,
    pool,
)
from penstock.errors import MissingDependency, StoreUnavailable
from penstock.telemetry.families import About, Bounded, Collected, Family, Histogram, Labels, place_of, place_of_name

BOUNDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 30.0, 300.0)  # seconds
_GROUP: Final = ("stream", "group")
_STREAM: Final = ("stream",)
_ACTION: Final = ("stream", "group", "action")
_ROUND: Final = ("round",)
COUNTERS: Final = (
    About("penstock_leases_claimed", "counter", "Leases that were claimed."),
    About("penstock_claimed", "counter", "Events in the leases that were claimed: attempts that began."),
    About("penstock_leases_ended", "counter", "Leases that were settled or released."),
    About("penstock_leases_lost", "counter", "Leases that were lost before their settle."),
    About("penstock_leases_expired", "counter", "Leases that this process took back from holders that were silent."),
    About("penstock_published", "counter", "Deliveries that ended well."),
    About("penstock_failed", "counter", "Attempts that failed, whether they are retried or not."),
    About("penstock_retried", "counter", "Attempts that failed and are to be retried."),
    About("penstock_dead", "counter", "Deliveries that were given up."),
    About("penstock_released", "counter", "Deliveries that were given back without a failure."),
    About("penstock_process_deaths", "counter", "Handler processes that died."),
    About("penstock_store_errors", "counter", "Times that the database could not be reached."),
    About("penstock_circuits_opened", "counter", "Times that the target of a group went down."),
    About("penstock_circuits_closed", "counter", "Times that the target of a group came back."),
    About("penstock_actions", "counter", "Operators' actions, as in the audit.", _ACTION),
    About("penstock_actions_moved", "counter", "Deliveries that operators' actions moved.", _ACTION),
    About("penstock_appended", "counter", "Events that were appended in Penstock's own transactions.", _STREAM),
    About("penstock_append_duplicates", "counter", "Appends of events that were there already.", _STREAM),
    About("penstock_ingested", "counter", "Entries of sources that became events.", _STREAM),
    About("penstock_ingest_known", "counter", "Entries that were events already.", _STREAM),
    About("penstock_ingest_rejected", "counter", "Entries that could not become events.", _STREAM),
    About("penstock_ingest_dropped", "counter", "Entries that the mapping left out.", _STREAM),
    About("penstock_ingest_gone", "counter", "Entries that were deleted at the source before they were read.", _STREAM),
    About("penstock_ingest_overtaken", "counter", "Batches that another ingester had taken over.", _STREAM),
    About("penstock_source_errors", "counter", "Times that a source could not be reached.", _STREAM),
    About("penstock_jobs_removed", "counter", "Finished jobs that retention removed.", _STREAM),
    About("penstock_schedule_runs", "counter", "Jobs that schedules submitted.", ()),
    About("penstock_rounds", "counter", "Rounds of background work.", _ROUND),
    About("penstock_round_errors", "counter", "Rounds of background work that failed.", _ROUND),
    About("penstock_runs_began", "counter", "Runs of engines that began in this process.", ()),
    About("penstock_runs_ended", "counter", "Runs of engines that ended in this process.", ()),
)
HISTOGRAMS: Final = (
    About("penstock_claim_seconds", "histogram", "How long claims that found something took."),
    About("penstock_handle_seconds", "histogram", "How long the handlers of a lease took, all its events together."),
    About("penstock_settle_seconds", "histogram", "How long the settle of a lease took."),
)
_OUTCOMES: Final = ("published", "failed", "dead", "released")
_OF_RUNS: Final = {"leases": "penstock_leases_claimed", "deaths": "penstock_process_deaths"}


class Metrics:
    """The counts of this process. Thread-safe."""

    def __init__(self, most: int | None = None) -> None:
        self._lock = threading.Lock()
        self._bounded = Bounded() if most is None else Bounded(most)
        self._counts: dict[str, dict[Labels, float]] = {one.name: {} if one.labels else {(): 0.0} for one in COUNTERS}
        self._times: dict[str, dict[Labels, list[Any]]] = {one.name: {} for one in HISTOGRAMS}
        self._from_rows = False  # on Spark: counts come from the rows of the run
        self._seen: dict[str, Mapping[str, int]] = {}

    # --- counting ------------------------------------------------------------------------------------------------

    def __call__(self, event: Observed) -> None:  # noqa: PLR0912 - one line for each kind
        with self._lock:
            match event:
                case Claimed():
                    self._claimed(event)
                case LeaseEnded():
                    self._ended(event)
                case LeaseGone(group=name):
                    self._add(name, leases_lost=1)
                case LeasesExpired(group=name, leases=leases, counts=counts):
                    self._add(name, leases_expired=leases)
                    self._settled(name, counts)
                case ProcessesDied(group=name, count=count):
                    self._add(name, process_deaths=count)
                case StoreAway(where=name):
                    self._add(name, store_errors=1)
                case CircuitOpened(group=name):
                    self._add(name, circuits_opened=1)
                case CircuitClosed(group=name):
                    self._add(name, circuits_closed=1)
                case Operated():
                    self._operated(event)
                case RunProgressed(groups=groups) if self._from_rows:
                    self._progressed(groups)
                case RunBegan(engine=engine, groups=groups):
                    self._from_rows, self._seen = engine == "spark", {}
                    self._expect(groups)
                    self._count("penstock_runs_began", (), 1)
                case RunEnded():
                    self._count("penstock_runs_ended", (), 1)
                case RoundEnded(name=name, code=code):
                    self._count("penstock_rounds", (name,), 1)
                    self._count("penstock_round_errors", (name,), int(code is not None))
                case SchedulesRan(jobs=jobs):
                    self._count("penstock_schedule_runs", (), jobs)
                case _:
                    self._of_stream(event)

    def _expect(self, names: Sequence[str]) -> None:
        """Begin to count at zero, so that the first of each kind is seen as an increase."""
        for name in names:
            stream, group = self._bounded(place_of_name(name))
            for one in COUNTERS:
                if one.labels == _GROUP and group:
                    self._count(one.name, (stream, group), 0)
                elif one.labels == _STREAM and not group:
                    self._count(one.name, (stream,), 0)

    def _of_stream(self, event: Observed) -> None:
        match event:
            case EventsAppended(stream=stream, events=events, duplicates=duplicates):
                self._add_to(stream, appended=events, append_duplicates=duplicates)
            case EntriesIngested(name=name, counts=counts, gone=gone):
                stream, _ = place_of_name(name)
                self._add_to(stream, ingested=counts.stored, ingest_known=counts.known, ingest_gone=gone)
                self._add_to(stream, ingest_rejected=counts.rejected, ingest_dropped=counts.dropped)
            case BatchOvertaken(name=name):
                self._add_to(place_of_name(name)[0], ingest_overtaken=1)
            case SourceAway(name=name):
                self._add_to(place_of_name(name)[0], source_errors=1)
            case JobsRemoved(stream=stream, jobs=jobs):
                self._add_to(stream, jobs_removed=jobs)
            case _:
                pass

    def _claimed(self, event: Claimed) -> None:
        if not self._from_rows:
            self._add(event.group, leases_claimed=1)
        self._add(event.group, claimed=event.events)
        self._observe("penstock_claim_seconds", event.group, event.seconds)

    def _ended(self, event: LeaseEnded) -> None:
        self._add(event.group, leases_ended=1)
        if not self._from_rows:
            self._settled(event.group, event.counts)
        if event.timing is not None:
            self._observe("penstock_handle_seconds", event.group, event.timing.handle_seconds)
            self._observe("penstock_settle_seconds", event.group, event.timing.settle_seconds)

    def _settled(self, name: str, counts: Settled) -> None:
        self._add(name, published=counts.published, retried=counts.failed, failed=counts.failed + counts.dead)
        self._add(name, dead=counts.dead, released=counts.released)

    def _progressed(self, groups: Mapping[str, Mapping[str, int]]) -> None:
        """Add what the rows of a run say more than the last time; its tasks cannot be asked."""
        for name, counts in groups.items():
            before = self._seen.get(name, {})
            new = {one: max(0, count - before.get(one, 0)) for one, count in counts.items()}
            published, failed, dead, released = (new.get(one, 0) for one in _OUTCOMES)
            self._settled(name, Settled(published, failed, dead, released))
            for one, metric in _OF_RUNS.items():
                self._add(name, **{metric.removeprefix("penstock_"): new.get(one, 0)})
        self._seen = {name: dict(counts) for name, counts in groups.items()}

    def _operated(self, event: Operated) -> None:
        place = self._bounded(place_of(event.stream or "", event.group))
        self._count("penstock_actions", (*place, event.action), 1)
        self._count("penstock_actions_moved", (*place, event.action), event.count or 0)

    def _add(self, name: str, **counts: int) -> None:
        place = self._bounded(place_of_name(name))
        for metric, count in counts.items():
            self._count(f"penstock_{metric}", place, count)

    def _add_to(self, stream: str, **counts: int) -> None:
        place = self._bounded(place_of(stream, None))
        for metric, count in counts.items():
            self._count(f"penstock_{metric}", place[:1], count)

    def _count(self, metric: str, labels: Labels, count: float) -> None:
        known = self._counts[metric]
        known[labels] = known.get(labels, 0) + count

    def _observe(self, metric: str, name: str, seconds: float | None) -> None:
        if seconds is None:
            return
        known, labels = self._times[metric], self._bounded(place_of_name(name))
        found = known.get(labels)
        if found is None:
            found = known[labels] = [[0] * (len(BOUNDS) + 1), 0.0]
        found[0][bisect.bisect_left(BOUNDS, seconds)] += 1
        found[1] += seconds

    # --- looking -------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Return all counts as of now."""
        with self._lock:
            counted = [Family(one, dict(self._counts[one.name])) for one in COUNTERS]
            timed = [
                Family(one, {key: _cumulated(*value) for key, value in self._times[one.name].items()})
                for one in HISTOGRAMS
            ]
        return [*counted, *timed]

    def collect(self) -> Iterator[Any]:
        """Yield the families for a registry of prometheus_client."""
        return Collected(self.families()).collect()

    @contextmanager
    def counting(self) -> Iterator[Metrics]:
        """Count what happens in this process, and in those of its pool, as long as the block lasts."""
        with ExitStack() as stack:
            for one in (everyone, pool):
                stack.callback(one.subscribe(self))
            yield self


def _cumulated(counts: list[int], total: float) -> Histogram:
    running, summed = 0, []
    for one in counts:
        running += one
        summed.append(running)
    return Histogram(BOUNDS, summed, total)


@contextmanager
def serving(metrics: Metrics, host: str, port: int) -> Iterator[str]:
    """Answer Prometheus on a port of its own, without a token, as long as the block lasts; yields the URL."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingDependency(f"pip install 'penstock[http]': {error}.") from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise StoreUnavailable(f"Cannot listen on {host}:{port} for metrics: {error}.") from error
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
