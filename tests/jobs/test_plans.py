"""What the verbs of jobs read where many jobs wait: their share, by indexes, and nothing of what else is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import penstock
from penstock.log.jobs import beat
from penstock.log.jobs.wanted import Wanted
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

JOBS = 50_000  # of all types together
TYPES = 200
DEAD = 4  # of each type; 13 more have failed
TABLES = ("events", "deliveries", "leases", "attempt_log", "job_notes", "job_cancels", "job_unique", "returned")
Verb = Callable[[penstock.Log], object]


class Busy:
    """A log with many waiting, failed and dead jobs of many types."""

    def __init__(self, url: str, sql: psycopg.Connection[Any]) -> None:
        self.url, self.sql = url, sql

    def read(self, verb: Verb) -> tuple[Counter[str], Counter[str]]:
        """Run a verb on a connection of its own; rows that it read by sequential scans, and by indexes, per table."""
        before = self._counters()
        with penstock.open(self.url, connections=1) as log:
            verb(log)
        seq, index = self._counters()
        return seq - before[0], index - before[1]

    def _counters(self) -> tuple[Counter[str], Counter[str]]:
        others = (
            "select count(*) from pg_stat_activity "
            " where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
        wait_until(lambda: self.sql.execute(others).fetchone() == (0,), "counters, which come with a connection's end")
        self.sql.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        self.sql.execute("select 1")
        rows = self.sql.execute(
            "select t.relname, t.seq_tup_read, "
            "       (select sum(idx_tup_read) from pg_stat_user_indexes i where i.relid = t.relid) "
            "  from pg_stat_user_tables t where t.schemaname = 'penstock' and t.relname = any(%s)",
            (list(TABLES),),
        ).fetchall()
        return Counter({name: rows for name, rows, _ in rows}), Counter({name: int(n or 0) for name, _, n in rows})


@pytest.fixture(scope="module")
def busy(postgres: PostgresServer) -> Iterator[Busy]:
    if postgres.version < (15, 0):
        pytest.skip("the counters of earlier versions come late")
    url = postgres.create_database()
    with psycopg.connect(url, autocommit=True) as sql:
        with penstock.open(url) as log:
            fill(log, sql)
        yield Busy(url, sql)


def fill(log: penstock.Log, sql: psycopg.Connection[Any]) -> None:
    sql.execute(
        """insert into penstock.events (stream, event_id, event_type, payload)
           select 'jobs:default:' || mod(n, 2) || ':t' || mod(n / 2, %s), gen_random_uuid(), 't' || mod(n / 2, %s), '{}'
             from generate_series(1, %s) n""",
        (TYPES, TYPES, JOBS),
    )
    each = JOBS // TYPES // 2
    failing, dying = max(1, each // 20), max(1, DEAD * JOBS // 50_000 // 2)
    for n in range(TYPES):
        log.declare_job(f"t{n}", keep_finished=3600, keep_dead=3600, retry=penstock.Retry(base_seconds=n % 3 * 1000))
        for priority in (0, 1):
            lease = log.job_claims.lease(in_stream(f"jobs:default:{priority}:t{n}"), failing + dying + 1, "w", None)
            assert isinstance(lease, list)
            ids = [event.event_id for event in lease[0].events]
            lease[0].settle(
                failed=dict.fromkeys(ids[:failing], "no"), dead=dict.fromkeys(ids[failing : failing + dying], "no")
            )
    sql.execute(
        """insert into penstock.job_unique (queue, job_type, unique_key, event_id)
           select 'default', event_type, "offset"::text, event_id from penstock.events where mod("offset", 5) = 0"""
    )
    # As many leases as claims of single jobs leave: that many real claims would take too long.
    group = next(one for one in log.groups("jobs:default:0:t0"))
    sql.execute("alter table penstock.leases disable trigger born_open")
    sql.execute(
        """insert into penstock.leases (group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at,
                                        attempts, members, low, high, fresh, total, outcome, upto, ended_at)
           select %s, 0, 1, %s, n, 'w', now(), now(), 1, 1, %s, %s, false, n, 'settled', %s, now()
             from generate_series(1, %s) n""",
        (group.group_id, group.spans[0].binding, *[10 * JOBS] * 3, JOBS // 2),
    )
    sql.execute("alter table penstock.leases enable always trigger born_open")
    log.schedule("nightly", "0 3 * * *", type="t7")
    for _ in range(2):
        sql.execute("update penstock.schedules set next_at = now() - interval '1 day'")
        log.tick_schedules()  # the second one finds its last job unfinished, and so does the one that is watched
    log.reap()  # which also counts the log
    sql.execute("vacuum analyze")


def in_stream(stream: str) -> Wanted:
    return Wanted("default", (), {stream})


def a_job(log: penstock.Log, state: str) -> penstock.Job:
    return log.jobs(type="t9", state=state, limit=1)[0]


EVERY = [f"t{n}" for n in range(TYPES)]
VERBS: dict[str, tuple[int, Verb]] = {  # how many rows it may read
    "claim one of one type": (200, lambda log: log.claim_job("w", ["t3"])),
    "claim one of many types": (20_000, lambda log: log.claim_job("w", EVERY)),
    "claim many": (3_000, lambda log: log.claim_jobs("w", ["t4"], limit=50)),
    "claim as an engine": (1_500, lambda log: log.job_claims.lease(in_stream("jobs:default:0:t5"), 50, "w", None)),
    "what is due": (8_000, lambda log: log.job_claims.look(log.job_claims.wanted(EVERY, "default"))),
    "submit": (100, lambda log: log.submit("t3", {})),
    "submit a unique one": (200, lambda log: log.submit("t3", {}, unique="key")),
    "submit a known unique one": (1_000, lambda log: log.submit("t7", {}, unique="15")),
    "replace a unique one": (2_000, lambda log: log.submit("t10", {}, unique="20", on_conflict="replace")),
    "cancel": (2_000, lambda log: log.cancel_job(a_job(log, "PENDING").id)),
    "look": (2_000, lambda log: log.job(a_job(log, "PENDING").id)),
    "list dead": (1_000, lambda log: log.jobs(type="t9", state="DEAD", limit=50)),
    "list waiting": (3_000, lambda log: log.jobs(type="t9", state="PENDING", limit=50)),
    "list finished": (3_000, lambda log: log.jobs(type="t9", state="PUBLISHED", limit=50)),
    "list any": (5_000, lambda log: log.jobs(type="t9", limit=50)),
    "schedules": (1_000, lambda log: log.tick_schedules()),
    "reap": (5_000, lambda log: log.reap()),
    "retention, nothing to remove": (5_000, lambda log: log.remove_finished_jobs()),
}


@pytest.mark.shows("K30", "J02")
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reads_its_share_by_indexes(busy: Busy, verb: str) -> None:
    most, do = VERBS[verb]
    scanned, looked_up = busy.read(do)
    assert not +scanned, f"sequential scans: {+scanned}"
    assert looked_up.total() <= most, f"rows read by indexes: {+looked_up}"


@pytest.mark.shows("K30", "J03")
def test_a_heartbeat_reads_its_lease_only(busy: Busy) -> None:
    with penstock.open(busy.url) as log:
        job = log.claim_job("w", ["t6"])
        assert job is not None and job.token is not None
        leases = {job.token >> 20: job.token}
    scanned, looked_up = busy.read(
        lambda log: (log.heartbeat(job.id, "w", token=job.token), beat.beat(log.store, leases, 30))
    )
    assert not +scanned and looked_up.total() <= 300, (+scanned, +looked_up)
    scanned, looked_up = busy.read(lambda log: log.complete_job(job.id, "w", token=job.token))
    assert not +scanned and looked_up.total() <= 300, (+scanned, +looked_up)
