"""Metrics as Prometheus reads them: their names, their labels, and their values at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.job import name_of
from penstock.core.limits import LABEL_SETS
from penstock.errors import MissingDependency

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OTHER: Final = "other"
WORKERS: Final = "workers"
Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class About:
    """A metric: what it says, of what kind it is, and its labels."""

    name: str
    kind: str  # counter, gauge or histogram
    text: str
    labels: tuple[str, ...] = ("stream", "group")


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many observations were not greater than each bound, all of them at the end, and their sum."""

    bounds: Sequence[float]
    counts: list[int]
    sum: float = 0.0


@dataclass(slots=True)
class Family:
    """The values of a metric, by the values of its labels."""

    about: About
    values: dict[Labels, float | Histogram] = field(default_factory=dict)

    def seen_by(self, may_see: Callable[[str], bool]) -> Family:
        """Return what may be seen by someone who may look at some streams only."""
        if "stream" not in self.about.labels:
            return Family(self.about)
        place = self.about.labels.index("stream")
        return Family(self.about, {key: value for key, value in self.values.items() if may_see(key[place])})


def place_of(stream: str, group: str | None) -> tuple[str, str]:
    """Return the labels of a stream and a group; the streams of a job type's priorities are one.

    >>> place_of("jobs:default:7:email:send", "workers")
    ('jobs:default:email:send', 'workers')
    """
    job = name_of(stream)
    return (stream if job is None else f"jobs:{job.queue}:{job.type}", group or "")


def place_of_name(name: str) -> tuple[str, str]:
    """Return the labels of what is called `stream/group`, or `jobs:queue:type`, or `source > stream`.

    >>> place_of_name("orders/fraud"), place_of_name("kafka > clicks")
    (('orders', 'fraud'), ('clicks', ''))
    """
    _, arrow, into = name.rpartition(" > ")
    if arrow:
        return (into, "")
    stream, slash, group = name.partition("/")
    if slash:
        return place_of(stream, group)
    return (name, WORKERS) if name.startswith("jobs:") else ("", "")


class Bounded:
    """Places that are told apart: the first ones that come, up to a limit; all others are `other`."""

    def __init__(self, most: int = LABEL_SETS) -> None:
        self._most = most
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def __call__(self, place: tuple[str, str]) -> tuple[str, str]:
        found = self._known.get(place)
        if found is None:
            if len(self._known) >= self._most:
                return (OTHER, OTHER)
            found = self._known[place] = place
        return found


def exposition(families: Iterable[Family]) -> bytes:
    """Return metrics in the text format of Prometheus."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise MissingDependency(f"pip install 'penstock[http]': {error}.") from error
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected([*families]))
    return generate_latest(registry)


class Collected:
    """What a registry of prometheus_client collects."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        """Yield the families as prometheus_client knows them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for one in self._families:
            about = one.about
            kinds: dict[str, Any] = {
                "counter": CounterMetricFamily,
                "gauge": GaugeMetricFamily,
                "histogram": HistogramMetricFamily,
            }
            made = kinds[about.kind](about.name, about.text, labels=about.labels)
            for key, value in one.values.items():
                if isinstance(value, Histogram):
                    bounds = [*map(repr, map(float, value.bounds)), "+Inf"]
                    made.add_metric(key, [*zip(bounds, value.counts, strict=True)], value.sum)
                else:
                    made.add_metric(key, value)
            yield made
