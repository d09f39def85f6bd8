"""The database enforces the rules: raw SQL, even as the owner, can do no more than the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock.core.delivery import State
from penstock.core.lifecycle import TRANSITIONS
from tests.support.log_steps import append_orders, claim_and_settle_all, state_by_event
from tests.support.raw_sql import RawSql, raw
from tests.support.roles import worker_role

PAIRS = [(before, after) for before in State for after in State]


@pytest.fixture
def worked(log: penstock.Log) -> penstock.Log:
    """A log with an open lease, an ended one and a few rows."""
    ids = append_orders(log, 10)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=5, claimed_by="w")
    assert lease is not None
    lease.settle(failed={ids[0]: "no"}, dead={ids[1]: "never"})
    assert log.claim("orders", "g", limit=2, claimed_by="w") is not None
    return log


@pytest.mark.shows("K04")
@pytest.mark.parametrize(
    "statement",
    [
        "update penstock.events set payload = payload",
        "update penstock.events set event_type = 'other' where \"offset\" = 1",
        'delete from penstock.events where "offset" = 1',
        "delete from penstock.events",
        "delete from penstock.leases",
        "delete from penstock.deliveries",
        "update penstock.leases set high = 99",
        "update penstock.leases set token = 1",
        "update penstock.leases set claimed_by = 'me'",
        "update penstock.leases set outcome = null, ended_at = null where outcome is not null",
        'update penstock.deliveries set "offset" = 99',
        "update penstock.deliveries set event_type = 'other'",
        "update penstock.deliveries set attempts = 0 where state = 'PENDING'",
        "update penstock.deliveries set attempts = 0 where state = 'DEAD'",
        "update penstock.deliveries set failures = 0",
        "update penstock.deliveries set replays = -1",
        "update penstock.deliveries set earlier_attempts = -1",
        "update penstock.deliveries set dead_at = {now} where state = 'DEAD'",
        "update penstock.leases set open_before = '{empty}', total = 0",
        "update penstock.leases set replay = 7",
    ],
)
def test_history_cannot_be_rewritten(worked: penstock.Log, log_url: str, statement: str) -> None:
    tables = ("events", "leases", "deliveries")
    with raw(log_url) as sql:
        before = [sql(f"select * from penstock.{table} order by 1, 2") for table in tables]
        with pytest.raises(sql.refusal, match="penstock"):
            sql(in_dialect(statement, sql))
        assert [sql(f"select * from penstock.{table} order by 1, 2") for table in tables] == before


def in_dialect(statement: str, sql: RawSql) -> str:
    postgres = sql.kind == "postgresql"
    return statement.format(now="clock_timestamp()" if postgres else "1", empty="{}" if postgres else "[1]")


@pytest.mark.shows("K04")
def test_an_explicit_offset_is_refused(log: penstock.Log, log_url: str) -> None:
    append_orders(log, 1)
    with raw(log_url) as sql:
        with pytest.raises(sql.refusal):
            sql(
                'insert into penstock.events ("offset", stream, event_id, event_type, payload) '
                "values (1000, 's', %s, 't', %s)",
                penstock.event_id("x"),
                b"{}",
            )
        assert sql("select count(*) from penstock.events") == [(1,)]


@pytest.mark.shows("K04")
def test_truncate_copy_and_the_replica_role_are_refused(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    """PostgreSQL only: SQLite has neither TRUNCATE nor COPY nor roles."""
    import psycopg

    log, url = postgres_log, postgres_log_url
    ids = append_orders(log, 3)
    log.create_group("orders", "g")
    claim_and_settle_all(log, limit=1)
    with psycopg.connect(url, autocommit=True) as owner:
        for role in ("origin", "replica"):
            owner.execute(f"set session_replication_role = {role}")
            for table in ("events", "leases", "deliveries"):
                with pytest.raises(psycopg.Error, match="append-only"):
                    owner.execute(f"truncate penstock.{table}")
                with pytest.raises(psycopg.Error, match="append-only"):
                    owner.execute(f"delete from penstock.{table}")
            with pytest.raises(psycopg.Error, match="append-only"):
                owner.execute("update penstock.events set payload = ''")
        owner.execute("set session_replication_role = origin")
        suffix = url.rpartition("/")[2]
        for kind in ("producer", "worker"):
            role = f"{kind}_{suffix}"
            owner.execute(f"create role {role} login")
            owner.execute(f"select penstock.grant_{kind}('{role}')")
            with psycopg.connect(url, user=role, autocommit=True) as other:
                row = (
                    "insert into penstock.events ({}stream, event_id, event_type, payload) {} values ({}%s, %s, %s, %s)"
                )
                values = ("s", penstock.event_id(role), "t", b"{}")
                for overriding in ("", "overriding system value"):
                    with pytest.raises(psycopg.Error):
                        other.execute(row.format('"offset", ', overriding, "9999, "), values)
                into = 'copy penstock.events ("offset", stream, event_id, event_type, payload) from stdin'
                refused = pytest.raises(psycopg.errors.InsufficientPrivilege)
                with refused, other.cursor() as cursor, cursor.copy(into) as copy:
                    copy.write_row((9999, "s", str(penstock.event_id("y")), "t", b"{}"))
                other.execute(row.format("", "", ""), values)  # what the role is for works
                for statement in ("delete from penstock.events", "update penstock.events set payload = ''"):
                    with pytest.raises(psycopg.Error):
                        other.execute(statement)
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    other.execute("select penstock.remove_events('orders', 100)")
                if kind == "producer":
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        other.execute("select penstock.remove_deliveries(1, 0)")
            works_as(url.replace("postgres@", f"{role}@"), kind)
            owner.execute(f"drop owned by {role}")
            owner.execute(f"drop role {role}")
        assert owner.execute("select count(*) from penstock.events where stream = 's'").fetchone() == (2,)
    assert [event.event_id for event in log.read("orders")] == ids


def works_as(url: str, kind: str) -> None:
    """Roles can do what they are for, and a refusal has a code."""
    with penstock.open(url) as log:
        log.append("roles", {}, type="t")
        if kind == "producer":
            with pytest.raises(penstock.PermissionDenied):
                log.create_group("roles", "g")
            return
        log.create_group("roles", "g", ordering="key", retry=penstock.Retry(base_seconds=0, jitter=0))
        (one,) = [event.event_id for event in log.read("roles")][-1:]
        lease = log.claim("roles", "g", claimed_by="w", limit=1)
        assert lease is not None
        lease.settle(failed={lease.events[0].event_id: "no"})
        assert one in claim_and_settle_all(log, "roles")
        log.rewind("roles", "g", to="beginning")
        lease = log.claim("roles", "g", claimed_by="w", limit=1)
        assert lease is not None
        lease.settle(emit=[{"stream": "out", "payload": {}, "type": "t"}])
        assert len(claim_and_settle_all(log, "roles")) == 1 and log.reap() == 0 and log.stats().groups
        with pytest.raises(penstock.PermissionDenied):
            log.delete_group("roles", "g")


def bring_to(log: penstock.Log, url: str, state: State) -> object:
    """A delivery with a row in the wanted state."""
    (one,) = append_orders(log, 1)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    if state is State.DEAD:
        lease.settle(dead={one: "never"})
        return one
    lease.settle(failed={one: "no"})
    if state is not State.PENDING:
        again = log.claim("orders", "g", claimed_by="w")
        assert again is not None
        if state is State.PUBLISHED:
            again.settle()
    return one


@pytest.mark.shows("K05")
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
def test_raw_sql_can_make_six_of_sixteen_transitions(
    log: penstock.Log, log_url: str, before: State, after: State
) -> None:
    bring_to(log, log_url, before)
    now = "clock_timestamp()" if log_url.startswith("postgres") else "1"
    fields = {
        State.PENDING: "claimed_at = null, claimed_by = null, published_at = null",
        State.CLAIMED: f"claimed_at = {now}, claimed_by = 'raw', published_at = null",
        State.PUBLISHED: f"claimed_at = null, claimed_by = null, published_at = {now}",
        State.DEAD: "claimed_at = null, claimed_by = null, published_at = null",
    }
    statement = f"update penstock.deliveries set state = '{after}', {fields[after]}"
    with raw(log_url) as sql:
        row = sql("select * from penstock.deliveries")
        if (before, after) in TRANSITIONS:
            sql(statement)
            assert sql("select state from penstock.deliveries") == [(after,)]
        else:
            with pytest.raises(sql.refusal, match=f"{before} -> {after} is not a transition"):
                sql(statement)
            assert sql("select * from penstock.deliveries") == row


@pytest.mark.shows("K05", "K25")
@pytest.mark.parametrize("state", list(State))
def test_the_api_makes_the_same_six_transitions(log: penstock.Log, log_url: str, state: State) -> None:
    one = bring_to(log, log_url, state)

    def now() -> str:
        return log.delivery("orders", "g", one).state

    assert now() == state
    assert log.redrive("orders", "g", event_ids=[one], dry_run=True).count == (state is State.DEAD)
    assert log.replay("orders", "g", event_ids=[one], dry_run=True).count == (state is State.PUBLISHED)
    if state is State.PENDING:
        assert log.kill("orders", "g", event_ids=[one], reason="why").count == 1
        shown = log.delivery("orders", "g", one)
        assert (shown.state, shown.last_error, shown.history[-1].outcome) == ("DEAD", "why", "killed")
        assert shown.attempts == 2, "killing goes through CLAIMED"
        return
    expected = penstock.InFlight if state is State.CLAIMED else penstock.IllegalTransition
    with pytest.raises(expected):
        log.kill("orders", "g", event_ids=[one])
    with pytest.raises(expected):
        log.reschedule("orders", "g", event_ids=[one], available_at=log.read("orders")[0].created_at)
    assert now() == state


@pytest.mark.shows("K05")
@pytest.mark.parametrize("state", ["CLAIMED", "PUBLISHED", "DEAD"])
def test_a_new_row_is_pending_or_in_its_lease(log: penstock.Log, log_url: str, state: str) -> None:
    ids = append_orders(log, 2)
    log.create_group("orders", "g")
    with raw(log_url) as sql:

        def insert(lease: object) -> None:
            now = "clock_timestamp()" if sql.kind == "postgresql" else "1"
            claimed = f"{now}, 'raw'" if state == "CLAIMED" else "null, null"
            published = now if state == "PUBLISHED" else "null"
            dead = now if state == "DEAD" else "null"
            sql(
                'insert into penstock.deliveries (group_id, "offset", stream, group_name, event_id, event_type, '
                "bucket, state, claimed_at, claimed_by, published_at, dead_at, lease) "
                f"values (1, 1, 'orders', 'g', %s, 't', 1, '{state}', {claimed}, {published}, {dead}, %s)",
                ids[0],
                lease,
            )

        for lease in (None, 77):
            with pytest.raises(sql.refusal, match="cannot be born"):
                insert(lease)
        held = log.claim("orders", "g", limit=1, claimed_by="w")
        assert held is not None
        if state == "CLAIMED":
            with pytest.raises(sql.refusal, match="cannot be born"):
                insert(held.id)
        else:
            insert(held.id)
            assert sql("select state from penstock.deliveries") == [(state,)]


LEASE = (
    "insert into penstock.leases (group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at, attempts, "
    "members, low, high, fresh{names}) values (1, 0, 1, 1, 7, 'raw', {now}, {later}, 1, 2, 0, 2, {true}{values})"
)


@contextmanager
def everybody(url: str) -> Iterator[list[RawSql]]:
    """Raw SQL as the owner and, where there are roles, as a worker."""
    with ExitStack() as stack:
        found = [stack.enter_context(raw(url))]
        if url.startswith("postgres"):
            worker, _ = stack.enter_context(worker_role(url))
            found.append(stack.enter_context(raw(worker)))
        yield found


@pytest.mark.shows("K41")
@pytest.mark.parametrize(
    "given",
    [
        "outcome = 'settled', upto = 2, ended_at = {now}",
        "outcome = 'settled', ended_at = {now}",
        "outcome = 'released', ended_at = {now}",
        "upto = 2",
        "answer = '{empty}'",
        "digest = 'x'",
        "published = 2",
        "dead = 0",
    ],
)
def test_a_new_lease_is_open(log: penstock.Log, log_url: str, given: str) -> None:
    append_orders(log, 2)
    log.create_group("orders", "g")
    with everybody(log_url) as clients:
        for sql in clients:
            now = "clock_timestamp()" if sql.kind == "postgresql" else "1"
            pairs = [pair.split(" = ") for pair in in_dialect(given, sql).split(", ")]
            with pytest.raises(sql.refusal, match="cannot be born"):
                sql(
                    LEASE.format(
                        names="".join(f", {name}" for name, _ in pairs),
                        values="".join(f", {value}" for _, value in pairs),
                        now=now,
                        later=f"{now} + interval '1 hour'" if sql.kind == "postgresql" else "9e18",
                        true="true" if sql.kind == "postgresql" else "1",
                    )
                )
            assert sql("select count(*) from penstock.leases") == [(0,)]
    assert {one.state for one in log.deliveries("orders", "g")} == {"PENDING"}


@pytest.mark.shows("K41", "K08")
def test_a_lease_can_only_be_created_while_holding_the_groups_turn(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    """A worker of an earlier version takes turns with an advisory lock; its claims would overlap those of others."""
    append_orders(postgres_log, 2)
    postgres_log.create_group("orders", "g")
    lease = LEASE.format(names="", values="", now="now()", later="now() + interval '1 hour'", true="true")
    with everybody(postgres_log_url) as clients:
        for sql in clients:
            sql("begin")
            sql("select pg_advisory_xact_lock('penstock.leases'::regclass::oid::bigint::bit(32)::int, 1)")
            with pytest.raises(sql.refusal, match="without the turn of its group"):
                sql(lease)
            sql("rollback")
            sql("begin")
            sql("select 1 from penstock.group_locks for update")
            sql(lease)
            sql("rollback")


ENDINGS = [
    "outcome = 'released', upto = low, ended_at = {now}",
    "outcome = 'expired', upto = low, ended_at = {now}",
    "outcome = 'rewound', upto = high, ended_at = {now}",
    "outcome = 'settled', upto = 2, ended_at = {now}",
]


@pytest.mark.shows("K41")
@pytest.mark.parametrize("said", ENDINGS)
def test_a_lease_cannot_end_before_everything_it_holds_is_returned(log: penstock.Log, log_url: str, said: str) -> None:
    append_orders(log, 4)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0))
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    with everybody(log_url) as clients:
        for sql in clients:
            now = "clock_timestamp()" if sql.kind == "postgresql" else "1"
            with pytest.raises(sql.refusal, match="not all that it holds was given back"):
                sql(f"update penstock.leases set {said.format(now=now)}")
    lease.settle(failed={event.event_id: "no" for event in lease.events[2:]})
    rows = log.claim("orders", "g", claimed_by="w")
    assert rows is not None and not rows.is_range
    with everybody(log_url) as clients:
        for sql in clients:
            now = "clock_timestamp()" if sql.kind == "postgresql" else "1"
            with pytest.raises(sql.refusal, match="not all that it holds was given back"):
                sql(f"update penstock.leases set outcome = 'settled', ended_at = {now} where id = {rows.id}")
    assert rows.settle().published == 2


@pytest.mark.shows("K41")
@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("delete from penstock.returned", "cannot be removed"),
        ("update penstock.returned set high = low + 1", "cannot be removed"),
        ("update penstock.returned set lane = 1", "cannot be removed"),
        ("update penstock.returned set high = high + 1", "it is in an open lease"),
        ("select penstock.remove_deliveries(1, 0)", "only by a rewind"),
    ],
)
def test_deliveries_that_wait_to_be_claimed_again_cannot_be_removed(
    postgres_log: penstock.Log, postgres_log_url: str, statement: str, refusal: str
) -> None:
    log = postgres_log
    append_orders(log, 6)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=3600))
    failed, back, held = (log.claim("orders", "g", limit=2, claimed_by="w") for _ in range(3))
    assert failed is not None and back is not None and held is not None
    failed.settle(failed={failed.events[0].event_id: "no"})
    back.release()
    with everybody(postgres_log_url) as clients:
        for sql in clients:
            with pytest.raises(sql.refusal, match=refusal):
                sql(statement)
    assert len(claim_and_settle_all(log)) == 2 and held.settle().published == 2
    assert sorted(state_by_event(log).values()) == ["PENDING"] + ["PUBLISHED"] * 5


@pytest.mark.shows("K41")
def test_no_row_can_be_inserted_for_a_member_of_an_open_lease(log: penstock.Log, log_url: str) -> None:
    ids = append_orders(log, 3)
    log.create_group("orders", "g")
    held = [log.claim("orders", "g", limit=1, claimed_by="w") for _ in range(2)]
    insert = (
        'insert into penstock.deliveries (group_id, "offset", stream, group_name, event_id, event_type, bucket, state, '
        "available_at, updated_at) select 1, e.\"offset\", 'orders', 'g', e.event_id, 't', "
        'e."offset", \'PENDING\', {now}, {now} from penstock.events e where e."offset" = %s'
    )
    with everybody(log_url) as clients:
        for sql in clients:
            for lease in held:
                assert lease is not None
                for offset in [event.offset for event in lease.events]:
                    with pytest.raises(sql.refusal, match="cannot be born PENDING"):
                        sql(in_dialect(insert, sql), offset)
        assert len(log.deliveries("orders", "g")) == len(ids), "a delivery is shown twice"
        for lease in held:
            assert lease is not None
            lease.settle(failed={event.event_id: "no" for event in lease.events})  # a settle may write it
        assert len(log.deliveries("orders", "g")) == len(ids)


@pytest.mark.shows("K41")
def test_outcomes_are_written_only_in_an_open_lease(log: penstock.Log, log_url: str) -> None:
    """A row marked CLAIMED by hand belongs to no lease; rows of an expired lease belong to the reaper."""
    (one,) = append_orders(log, 1)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    first = log.claim("orders", "g", claimed_by="w")
    assert first is not None
    first.settle(failed={one: "no"})
    publish = (
        "update penstock.deliveries set state = 'PUBLISHED', published_at = {now}, claimed_at = null, claimed_by = null"
    )
    bury = "update penstock.deliveries set state = 'DEAD', dead_at = {now}, claimed_at = null, claimed_by = null"
    with everybody(log_url) as clients:
        for sql in clients:
            for lease in ("null", "7777", str(first.id)):
                sql("begin")
                sql(
                    in_dialect(
                        "update penstock.deliveries set state = 'CLAIMED', claimed_at = {now}, claimed_by = 'x'", sql
                    )
                    + f", lease = {lease}"
                )
                for statement in (publish, bury):
                    sql("savepoint s")
                    with pytest.raises(sql.refusal, match="outside an open lease"):
                        sql(in_dialect(statement, sql))
                    sql("rollback to savepoint s")
                sql("rollback")
        held = log.claim("orders", "g", claimed_by="w", lease_seconds=0.001)
        assert held is not None
        while datetime.now(UTC) <= held.expires_at + timedelta(milliseconds=5):
            pass  # SQLite's clock has milliseconds
        for sql in clients:
            for statement in (publish, bury):
                with pytest.raises(sql.refusal, match="expired"):
                    sql(in_dialect(statement, sql))
            for change in ("outcome = 'settled', ended_at = {now}", "expires_at = {later}"):
                later = "clock_timestamp() + interval '1 hour'" if sql.kind == "postgresql" else "9000000000000000000"
                with pytest.raises(sql.refusal, match="expired"):
                    sql(
                        "update penstock.leases set "
                        + change.replace("{later}", later).replace("{now}", in_dialect("{now}", sql))
                        + f" where id = {held.id}"
                    )
    with pytest.raises(penstock.LeaseLost):
        held.settle()
    assert log.reap() == 1 and log.delivery("orders", "g", one).state == "PENDING"


@pytest.mark.shows("K41")
def test_the_publish_time_cannot_change(log: penstock.Log, log_url: str) -> None:
    bring_to(log, log_url, State.PUBLISHED)
    with everybody(log_url) as clients:
        for sql in clients:
            before = sql("select * from penstock.deliveries")
            for change in ("published_at = {now}", "attempts = 0", "failures = 0", "lease = 7"):
                with pytest.raises(sql.refusal, match="penstock"):
                    sql(in_dialect(f"update penstock.deliveries set {change}", sql))
            assert sql("select * from penstock.deliveries") == before


@pytest.mark.shows("K41")
def test_a_forged_bucket_is_refused(log: penstock.Log, log_url: str) -> None:
    with raw(log_url) as sql:
        for key, bucket in (("a", 300), ("a", None), (None, 7), ("a", -1)):
            with pytest.raises(sql.refusal, match=r"bucket|out of range"):
                sql(
                    "insert into penstock.events (stream, event_id, event_type, payload, ordering_key, bucket) "
                    "values ('orders', %s, 't', %s, %s, %s)",
                    penstock.event_id("x"),
                    b"{}",
                    key,
                    bucket,
                )
        if sql.kind == "postgresql":  # SQLite cannot compute the right bucket
            with pytest.raises(sql.refusal, match="bucket"):
                sql(
                    "insert into penstock.events (stream, event_id, event_type, payload, ordering_key, bucket) "
                    "values ('orders', %s, 't', %s, 'a', 0)",
                    penstock.event_id("x"),
                    b"{}",
                )
        log.append("orders", {}, type="t", ordering_key="a")
        assert sql("select bucket from penstock.events") == [(0xCA,)]


@pytest.mark.shows("K06")
@pytest.mark.parametrize(
    "fields",
    [
        "claimed_at = {now}",
        "claimed_by = 'x'",
        "published_at = {now}",
        "state = 'CLAIMED'",
        "state = 'CLAIMED', claimed_at = {now}",
        "state = 'CLAIMED', claimed_by = 'x'",
        "state = 'CLAIMED', claimed_at = {now}, claimed_by = 'x', published_at = {now}",
    ],
)
def test_field_invariants_are_constraints(log: penstock.Log, log_url: str, fields: str) -> None:
    bring_to(log, log_url, State.PENDING)
    with raw(log_url) as sql:
        before = sql("select * from penstock.deliveries")
        now = "clock_timestamp()" if sql.kind == "postgresql" else "1"
        with pytest.raises(sql.refusal):
            sql(f"update penstock.deliveries set {fields.format(now=now)}")
        assert sql("select * from penstock.deliveries") == before


@pytest.mark.shows("K32")
def test_the_second_vocabulary_is_readable(log: penstock.Log, log_url: str) -> None:
    ids = append_orders(log, 4)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    lease.settle(dead={ids[0]: "no"})
    held = log.claim("orders", "g", limit=1, claimed_by="w-2")
    assert held is not None
    with raw(log_url) as sql:
        rows = _second(sql)
    assert [row[:2] for row in rows] == [("DEAD", None), ("DELIVERED", None), ("DELIVERING", "w-2"), ("PENDING", None)]
    assert [row[2] for row in rows] == [False, False, True, False] and [row[3] for row in rows] == [
        False,
        True,
        False,
        False,
    ]


def _second(sql: RawSql) -> list[tuple[object, ...]]:
    rows = sql(
        "select status, locked_by, locked_at is not null, delivered_at is not null "
        'from penstock.delivery_v2 order by "offset"'
    )
    return [(status, by, bool(locked), bool(delivered)) for status, by, locked, delivered in rows]
