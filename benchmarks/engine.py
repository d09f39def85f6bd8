"""What the engine costs around a handler, and what each of its promises costs on top."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from itertools import count
from typing import Any

import orjson
import psycopg

import penstock
from benchmarks import handlers
from benchmarks.claiming import fill
from benchmarks.measuring import Figure, overall, seconds
from penstock.declare.groups import declare
from penstock.declare.subscription import Policy, Subscription, handler_of
from penstock.engine.local.engine import LocalEngine
from tests.support.postgres_server import PostgresServer

EVENTS = {"orders": 300_000, "few": 40_000, "waits": 10_000, "lost": 1_000}
RETRY = penstock.Retry(max_attempts=2, base_seconds=0)
LEASE = 50_000
LOST_SECONDS = 3.0  # the lease of a worker that was killed
_numbers = count()


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        for stream, count in EVENTS.items():
            fill(log, stream, count, min(count, 10_000))
        connection.execute("vacuum analyze")
        work = Bench(url, log, connection)
        return [*work.cost_of_the_loop(), *work.two_processes(), *work.failures(), work.lost_rows(), work.waiting()]


class Bench:
    """One log, a new group for every run."""

    def __init__(self, url: str, log: penstock.Log, connection: psycopg.Connection[Any]) -> None:
        self.url = url
        self.log = log
        self.connection = connection

    def drain(self, handler: str, stream: str = "orders", engines: int = 1, **policy: Any) -> float:
        """Events a second from the first claim to the last settle; all processes are warm before it begins."""
        group = f"g{next(_numbers)}"
        subscription = subscribed(handler, stream, group, **policy)
        declare(self.log, subscription, "bench")
        self.log.pause(stream, group)
        members = [Member(self.url, handler, stream, group, policy) for _ in range(engines - 1)]
        engine = LocalEngine(self.log, [subscription])
        engine.start()
        for member in members:
            member.wait_ready()
        while not engine.idle:
            time.sleep(0.01)
        self.log.resume(stream, group)
        while not self._finished(group, EVENTS[stream]):
            time.sleep(0.1)
        engine.stop()
        engine.wait()
        for member in members:
            member.stop()
        row = self.connection.execute(
            "select extract(epoch from max(l.ended_at) - min(l.claimed_at))::float8 from penstock.leases l "
            "join penstock.groups g using (group_id) where g.group_name = %s and l.members > 0",
            (group,),
        ).fetchone()
        assert row is not None
        return EVENTS[stream] / float(row[0])

    def _finished(self, group: str, events: int) -> bool:
        row = self.connection.execute(
            "select coalesce(sum(answer[1] + answer[3]), 0) from penstock.leases join penstock.groups using (group_id) "
            "where group_name = %s and outcome = 'settled'",
            (group,),
        ).fetchone()
        assert row is not None
        return int(row[0]) >= events

    def rates(self, *runs: dict[str, Any], times: int = 5) -> list[float]:
        """The rate of each over all its turns."""
        rates: list[list[float]] = [[] for _ in runs]
        for _ in range(times):
            for rate, options in zip(rates, runs, strict=True):
                rate.append(self.bare() if options.get("bare") else self.drain(**options))
        return [overall(rate) for rate in rates]

    def bare(self) -> float:
        """The same Arrow read, and a loop over it: no lease, no outcome, no second process."""
        from adbc_driver_postgresql import dbapi

        select = (
            'select "offset", uuid_send(event_id), event_type, payload, content_type, headers::text, metadata::text, '
            "partition_key, ordering_key, timestamptz_send(available_at), timestamptz_send(created_at) "
            'from penstock.events where stream = \'orders\' and "offset" > {} and "offset" <= {} order by "offset"'
        )

        def loop() -> None:
            done = 0
            with dbapi.connect(self.url) as connection:
                for after in range(0, EVENTS["orders"], LEASE):
                    with connection.cursor() as cursor:
                        cursor.execute(select.format(after, after + LEASE))
                        for payload in cursor.fetch_arrow_table().column(3).to_pylist():
                            orjson.loads(payload)
                            done += 1
            assert done == EVENTS["orders"]

        return EVENTS["orders"] / seconds(loop)

    def cost_of_the_loop(self) -> list[Figure]:
        bare, inline, isolated, keyed, batch = self.rates(
            {"bare": True},
            {"handler": "parse", "isolation": "inline"},
            {"handler": "parse"},
            {"handler": "parse_and_count", "isolation": "inline"},
            {"handler": "parse_many", "batch": 500},
        )
        return [
            ratio("inline JSON-parsing handler vs a bare loop over the same Arrow read", inline, bare, 0.85),
            ratio("isolated (default) vs inline", isolated, inline, 0.75),
            ratio("batch handler (500 a call, the same parsing) vs one call per event", batch, isolated, None),
            ratio("handler with keyed state, 1,000 keys, vs inline without", keyed, inline, 0.5),
        ]

    def two_processes(self) -> list[Figure]:
        spin = {"handler": "spin", "stream": "few"}
        one, two = self.rates(spin, {**spin, "engines": 2})
        json_one, json_two = self.rates({"handler": "parse"}, {"handler": "parse", "engines": 2})
        return [
            ratio("two processes vs one, handler of 100 µs of CPU", two, one, 1.6),
            ratio("two processes vs one, JSON-parsing handler", json_two, json_one, None),
        ]

    def failures(self) -> list[Figure]:
        none, some = self.rates({"handler": "one_percent_never"}, {"handler": "one_percent"})
        keys = {"ordering": "key"}
        ordered, failing, again = self.rates(
            {"handler": "parse", **keys},
            {"handler": "one_per_mille", **keys},
            {"handler": "one_per_mille_of_ten_keys", **keys},
            times=3,
        )
        return [
            ratio("1 % failing on every attempt, until all are DEAD or PUBLISHED, vs none", some, none, 0.8),
            ratio("ordered group, 1,000 keys, 0.1 % failing vs none", failing, ordered, 0.3),
            ratio("the same, every tenth event of ten keys failing", again, ordered, None),
        ]

    def lost_rows(self) -> Figure:
        """Retries whose worker was killed come back in parts, and not one by one."""
        times = [(self._retries(lost=False), self._retries(lost=True)) for _ in range(3)]
        kept, lost = (statistics.median(one) for one in zip(*times, strict=True))
        what = "1,000 rows of a killed worker, handler of 1 ms, from the lease's expiry on less 2 s, vs never lost"
        detail = f"{lost:.2f} s against {kept:.2f} s"
        return Figure(what, max(0.0, lost - 2) / kept, 2, at_least=False, detail=detail)

    def _retries(self, *, lost: bool) -> float:
        """Seconds until a thousand retries are done; from the expiry on, if a worker died with them."""
        group = f"g{next(_numbers)}"
        subscription = subscribed("sleep_1_ms", "lost", group, retry=penstock.Retry(max_attempts=50, base_seconds=0))
        declare(self.log, subscription, "bench")
        first = self.log.claim("lost", group, limit=1_000, claimed_by="bench")
        assert first is not None and len(first.events) == EVENTS["lost"]
        first.settle(failed={event.event_id: "once" for event in first.events})
        begin = None
        if lost:
            held = self.log.claim("lost", group, limit=1_000, claimed_by="killed", lease_seconds=LOST_SECONDS)
            assert held is not None and len(held.events) == EVENTS["lost"]
            begin = held.expires_at
        engine = LocalEngine(self.log, [subscription])
        engine.start()
        while not self._finished(group, EVENTS["lost"]):
            time.sleep(0.05)
        engine.stop()
        engine.wait()
        row = self.connection.execute(
            "select extract(epoch from max(ended_at) - coalesce(%s, min(claimed_at)))::float8 from penstock.leases "
            "join penstock.groups using (group_id) where group_name = %s and claimed_by not in ('bench', 'killed')",
            (begin, group),
        ).fetchone()
        assert row is not None
        return float(row[0])

    def waiting(self) -> Figure:
        rate = max(self.drain("wait_50_ms", "waits", concurrency=32) for _ in range(2))
        return ratio("handler of 50 ms with concurrency=32 vs the ideal 640/s", rate, 640, 0.9)


class Member:
    """Another engine process on the same group."""

    def __init__(self, url: str, handler: str, stream: str, group: str, policy: dict[str, Any]) -> None:
        what = orjson.dumps([url, handler, stream, group, policy]).decode()
        command = [sys.executable, "-m", "benchmarks.member", what]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def stop(self) -> None:
        self._process.communicate()


def subscribed(handler: str, stream: str, group: str, **policy: Any) -> Subscription:
    """A subscription of one of the handlers that are measured."""
    found = handler_of(getattr(handlers, handler), None)
    return Subscription(stream, group, Policy(**{"retry": RETRY, **policy}), [found])


def ratio(what: str, ours: float, other: float, target: float | None) -> Figure:
    return Figure(what, ours / other, target, detail=f"{ours:,.0f} events/s against {other:,.0f}")
