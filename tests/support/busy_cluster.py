"""An app on a standalone cluster that always has some work while a test kills what it runs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import penstock as library
from tests.support.done_table import done_offsets
from tests.support.raw_sql import raw
from tests.support.running import Running
from tests.support.spark_cluster import DRIVER_CONF, SparkCluster
from tests.support.spark_shop import SparkShop
from tests.support.waiting import wait_until

SECONDS = 120
_BACKLOG = 60  # events that wait while a test waits
# Executors come one by one, as they are needed.
_GROWING = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.executor.cores": "1",
}


class BusyCluster:
    """A shop whose orders take 20 ms each."""

    def __init__(self, cluster: SparkCluster, directory: Path, url: str) -> None:
        library.open(url).close()
        self.cluster = cluster
        # An event may be alone in the lease of a process that a test kills, more than once.
        self.shop = SparkShop(directory, url, max_attempts=50)
        self.appended = 0

    def run(self, *arguments: str) -> Running:
        settings = [word for key, value in {**DRIVER_CONF, **_GROWING}.items() for word in ("--conf", f"{key}={value}")]
        return self.shop.run(*arguments, *settings, master=self.cluster.url)

    def wait_at_work(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something while the app always has work."""

        def look() -> bool:
            if self.appended - len(done_offsets(self.shop.url)) < _BACKLOG:
                self.shop.append(_BACKLOG, seconds=0.02)
                self.appended += _BACKLOG
            return condition()

        wait_until(look, what, SECONDS)

    def wait_for_progress(self, by: int = 20) -> None:
        enough = len(done_offsets(self.shop.url)) + by
        self.wait_at_work(lambda: len(done_offsets(self.shop.url)) >= enough, "the app to continue")

    def executors(self) -> set[str]:
        """The executors that have claimed something; claimed_by is host/executor/pid/group."""
        with raw(self.shop.url) as sql:
            found = sql("select distinct claimed_by from penstock.leases")
        return {str(one).split("/")[1] for (one,) in found}

    def claimers(self) -> set[int]:
        """The Python workers that claimed last."""
        with raw(self.shop.url) as sql:
            found = sql("select claimed_by from penstock.leases order by id desc limit 4")
        return {int(str(one).split("/")[2]) for (one,) in found}

    def check_once(self) -> None:
        """Every event had its effects once."""
        counted = Counter(done_offsets(self.shop.url))
        with raw(self.shop.url) as sql:  # offsets have a gap where the server was killed
            appended = {offset for (offset,) in sql('select "offset" from penstock.events')}
        assert set(counted) == appended and len(appended) == self.appended, "lost or unknown events"
        assert set(counted.values()) == {1}, counted.most_common(5)
        with library.open(self.shop.url) as log:
            (group,) = log.stats().groups
            seen = sum(log.state("orders", "slow", f"k{n}")["seen"] for n in range(7))
        expected = (self.appended, self.appended, 0, 0)
        assert (seen, group.published, group.claimed, group.dead) == expected, (seen, group, expected)
