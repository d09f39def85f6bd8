"""The process is killed before and after every statement: uncommitted work never happened, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import penstock
from penstock.testing import CrashPoint, StatementCounter, VirtualClock
from tests.support.forks import killed_in_child
from tests.support.log_steps import claim_and_settle_all, state_by_event
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw

RETRY = penstock.Retry(max_attempts=3, base_seconds=0, jitter=0)
EVENTS = 12


def prepare(log: penstock.Log, group: str, *, due: bool) -> None:
    """A group that has a bit of everything: rows that wait or are due, dead letters, a returned range, an open lease's
    worth."""
    log.create_group("orders", group, ordering="key", lanes=1, retry=RETRY)
    ids = [one.event_id for one in log.read("orders")]
    first = log.claim("orders", group, limit=6, claimed_by="w")
    assert first is not None
    failed = "no" if due else penstock.RetryLater(30)
    first.settle(failed={ids[0]: failed}, dead={ids[1]: "never"}, released=ids[3:6])


def do_claim(log: penstock.Log, group: str, lease: penstock.Lease | None) -> None:
    log.claim("orders", group, limit=5, claimed_by="victim")


def do_settle(log: penstock.Log, group: str, lease: penstock.Lease | None) -> None:
    assert lease is not None
    head, *others = lease.events
    free = next(event for event in others[:-1] if event.ordering_key is None or event.ordering_key != head.ordering_key)
    effects = {
        "state": {"total": {group: 1}},
        "emit": [{"stream": f"out-{group}", "payload": {}, "type": "t"}],
        "execute": [("insert into done (name) values (?)", [group])],
    }
    lease.settle(failed={head: "no"}, released=others[-1:], effects={free: effects})


def do_release(log: penstock.Log, group: str, lease: penstock.Lease | None) -> None:
    assert lease is not None
    lease.release()


def do_reap(log: penstock.Log, group: str, lease: penstock.Lease | None) -> None:
    from penstock.log import reap

    with log.store.transaction() as tx:
        reap.reap_group(tx, "orders", group)


def do_rewind(log: penstock.Log, group: str, lease: penstock.Lease | None) -> None:
    log.rewind("orders", group, to=3, state="reset")


Verb = Callable[[penstock.Log, str, "penstock.Lease | None"], None]
VERBS: dict[str, Verb] = {
    "claim": do_claim,
    "claim_rows": do_claim,
    "settle": do_settle,
    "release": do_release,
    "reap": do_reap,
    "rewind": do_rewind,
}


def snapshot(url: str, group: str) -> list[Any]:
    """Everything about one group, read with plain SQL."""
    with raw(url) as sql:
        (number,) = sql("select group_id from penstock.groups where group_name = %s", group)[0]
        tables = ("leases", "deliveries", "returned", "attempt_log", "state")
        rows = [sorted(map(repr, sql(f"select * from penstock.{table} where group_id = {number}"))) for table in tables]
        rewinds = sql("select rewinds from penstock.groups where group_name = %s", group)
        effects = sql("select count(*) from done where name = %s", group)
        out = sql("select count(*) from penstock.events where stream = %s", f"out-{group}")
        return [*rows, rewinds, effects, out]


@pytest.fixture
def stage(make_log: MakeLog, clock: VirtualClock, log_url: str) -> penstock.Log:
    log = make_log(clock=clock)
    for n in range(EVENTS):
        log.append("orders", {"n": n}, type="t", ordering_key=f"k{n % 2}" if n % 3 else None)
    with raw(log_url) as sql:
        sql("create table done (name text not null)")
    return log


def set_up(log: penstock.Log, clock: VirtualClock, verb: str, group: str) -> penstock.Lease | None:
    prepare(log, group, due=verb == "claim_rows")
    if verb.startswith("claim"):
        return None
    lease = log.claim("orders", group, limit=4, claimed_by="victim")
    assert lease is not None and len(lease.events) > 1
    if verb == "reap":
        clock.advance(61)
    return lease


def held_by(log: penstock.Log, lease: penstock.Lease | None) -> penstock.Lease | None:
    return None if lease is None else penstock.Lease(log.store, lease._row, lease.events._columns)


def in_a_child_that_dies(url: str, clock: VirtualClock, point: CrashPoint, verb: str, group: str, lease: Any) -> bool:
    """Run the verb in a child process; return whether it was killed."""

    def work() -> None:
        log = penstock.open(url, clock=clock, hook=point)
        point.arm()
        VERBS[verb](log, group, held_by(log, lease))

    return killed_in_child(work)


@pytest.mark.shows("X02", "K15", "K17", "K27")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_killed_at_any_statement_happened_completely_or_not_at_all(
    stage: penstock.Log, make_log: MakeLog, clock: VirtualClock, log_url: str, verb: str
) -> None:
    counter = StatementCounter()
    counted = make_log(clock=clock, hook=counter)
    lease = set_up(stage, clock, verb, "count")
    VERBS[verb](counted, "count", held_by(counted, lease))
    steps = list(counter.blocks)
    done = snapshot_shape(snapshot(log_url, "count"))
    assert steps[-1] == "commit" or verb.startswith("claim"), steps
    counted.close()
    stage.close()  # a fork must not share connections
    for number in range(1, len(steps) + 1):
        for when in ("before", "after"):
            group = f"{verb}-{when}-{number}"
            with penstock.open(log_url, clock=clock) as log:
                lease = set_up(log, clock, verb, group)
            before = snapshot(log_url, group)
            assert in_a_child_that_dies(log_url, clock, CrashPoint(when, number), verb, group, lease), (when, number)
            after = snapshot(log_url, group)
            committed = "commit" in steps[: number if when == "after" else number - 1]
            if committed:
                assert snapshot_shape(after) == done, f"{when} {number}: half of the change is there"
            else:
                assert after == before, f"killed {when} statement {number} ({steps[number - 1]}), but something changed"
            drains_afterwards(log_url, clock, group)


def snapshot_shape(rows: list[Any]) -> list[Any]:
    """The number of rows of everything; ids and names differ by group."""
    return [len(part) if isinstance(part, list) and part and isinstance(part[0], str) else part for part in rows]


def drains_afterwards(url: str, clock: VirtualClock, group: str) -> None:
    """The group continues, and every event ends PUBLISHED or DEAD."""
    with penstock.open(url, clock=clock) as log:
        clock.advance(120)
        claim_and_settle_all(log, group=group)
        assert set(state_by_event(log, group=group).values()) <= {"PUBLISHED", "DEAD"}
        assert len(state_by_event(log, group=group)) == EVENTS


@pytest.mark.shows("X02", "K08")
def test_a_claim_of_one_statement_killed_on_either_side_of_its_commit(make_log: MakeLog, log_url: str) -> None:
    """The second claim of a group that has only ranges happens completely or not at all; a lost lease comes back."""
    log = make_log()
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 8)
    points = [(when, number) for when in ("before", "after") for number in (1, 2)]
    for when, number in points:
        log.create_group("orders", f"{when}-{number}", lease_seconds=0.2)
    log.close()
    for when, number in points:
        assert killed_in_child(partial(_claim_twice, log_url, CrashPoint(when, number), f"{when}-{number}"))
        with penstock.open(log_url) as log:
            found = 0
            while found < 6:  # let the victim's lease expire
                lease = log.claim("orders", f"{when}-{number}", limit=8, claimed_by="other")
                found += 0 if lease is None else lease.settle().published
            assert set(state_by_event(log, group=f"{when}-{number}").values()) == {"PUBLISHED"}


def _claim_twice(url: str, point: CrashPoint, group: str) -> None:
    own = penstock.open(url, hook=point)
    first = own.claim("orders", group, limit=2, claimed_by="victim")
    assert first is not None and len(first.events) == 2
    first.settle()
    point.arm()
    own.claim("orders", group, limit=2, claimed_by="victim")


@pytest.mark.shows("X02", "K01")
def test_an_append_killed_before_commit_never_happened(log_url: str, make_log: MakeLog) -> None:
    make_log().close()
    for number in (1, 2, 3, 4):
        for when in ("before", "after"):
            killed_in_child(partial(_append, log_url, CrashPoint(when, number), number, f"{when}{number}"))
    with penstock.open(log_url) as log:
        stored = {event.event_id for event in log.read("orders")}
        for number in (1, 2, 3, 4):
            for when in ("before", "after"):  # an append with the same id can always be repeated
                one = penstock.event_id(f"{when}{number}")
                answer = log.append("orders", {"n": number}, type="t", event_id=one)
                assert answer.duplicate == (one in stored)
        assert len(log.read("orders")) == 8


def _append(url: str, point: CrashPoint, number: int, name: str) -> None:
    log = penstock.open(url, hook=point)
    point.arm()
    log.append("orders", {"n": number}, type="t", event_id=penstock.event_id(name))


@pytest.mark.shows("X04", "K15")
def test_a_worker_stopped_beyond_its_lease_is_refused_every_time(log_url: str, make_log: MakeLog) -> None:
    """SIGSTOP while it holds a lease, SIGCONT after another worker took over: its settle is refused."""
    log = make_log()
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 20)
    for number in range(3):
        log.create_group("orders", f"g{number}", lease_seconds=0.3)
    log.close()
    for group in ("g0", "g1", "g2"):
        told, tell = os.pipe()
        heard, hear = os.pipe()
        child = os.fork()
        if child == 0:
            own = penstock.open(log_url)
            lease = own.claim("orders", group, limit=20, claimed_by="stopped")
            os.write(tell, b"claimed" if lease else b"nothing")
            os.read(heard, 1)  # stopped here
            try:
                assert lease is not None
                lease.settle(emit=[{"stream": "out", "payload": {}, "type": "t"}])
                os._exit(1)
            except penstock.LeaseLost:
                os._exit(0)
        assert os.read(told, 10) == b"claimed"
        os.kill(child, signal.SIGSTOP)
        with penstock.open(log_url) as other:
            while (lease := other.claim("orders", group, limit=20, claimed_by="other")) is None:
                pass  # let the lease expire
            lease.release()
        os.kill(child, signal.SIGCONT)
        os.write(hear, b"x")
        _, status = os.waitpid(child, 0)
        assert os.WEXITSTATUS(status) == 0, "a stale settle was accepted"
        for end in (told, tell, heard, hear):
            os.close(end)
        with penstock.open(log_url) as log:
            assert log.read("out") == []
            assert set(state_by_event(log, group=group).values()) == {"PENDING"}
