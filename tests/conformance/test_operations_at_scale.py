"""Operations and kinds of errors among many dead letters: what is read, and which role may do it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

import penstock
from tests.support.log_steps import claim_and_settle_all
from tests.support.query_plans import plan_nodes, scans
from tests.support.roles import worker_role

DEAD, KINDS = 40_000, 8


@pytest.fixture
def many(postgres_log: penstock.Log, postgres_log_url: str) -> psycopg.Connection[Any]:
    """A group with many dead letters of a few kinds."""
    log = postgres_log
    group = log.create_group("orders", "g").group_id
    sql = psycopg.connect(postgres_log_url, autocommit=True)
    sql.execute("alter table penstock.deliveries disable trigger user")  # so many real claims would take too long
    sql.execute(
        """insert into penstock.deliveries (group_id, "offset", stream, group_name, event_id, event_type, bucket, state,
                                            attempts, failures, dead_at, last_error, fingerprint)
           select %s, n, 'orders', 'g', gen_random_uuid(), 't', 0, 'DEAD', 1, 1, now() - make_interval(secs => n),
                  'no', '1-' || mod(n, %s) from generate_series(1, %s) n""",
        (group, KINDS, DEAD),
    )
    sql.execute("vacuum analyze penstock.deliveries")
    return sql


def explained(log: penstock.Log, sql: psycopg.Connection[Any], block: str, **params: Any) -> list[dict[str, Any]]:
    text: Any = "explain (analyze, buffers, format json) " + log.store.blocks[block]
    row = sql.execute(text, params, prepare=False).fetchone()
    assert row is not None
    return list(plan_nodes((row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]))


@pytest.mark.shows("O14", "K37")
def test_kinds_are_found_from_one_to_the_next(postgres_log: penstock.Log, many: psycopg.Connection[Any]) -> None:
    group = postgres_log.groups("orders")[0].group_id
    with many:
        kinds = explained(postgres_log, many, "fingerprints.kinds", group_id=group, most=1_000)
        read = sum(
            node["Actual Rows"] * node["Actual Loops"] for node in kinds if node.get("Relation Name") == "deliveries"
        )
        assert read <= 3 * KINDS, "one entry for each kind, not one for each dead letter"
        assert ("Seq Scan", "deliveries") not in scans(kinds)
        asked = {"group_id": group, "kind": "1-3", "hours": ["2040-01-01"], "most": 1_000}
        counts = explained(postgres_log, many, "fingerprints.counts", **asked)
        assert scans(counts) == {("Index Only Scan", "deliveries")}
        found = postgres_log.fingerprints("orders", "g")
        assert len(found) == KINDS and {one.count for one in found} == {DEAD // KINDS}
        which = dict.fromkeys(
            ("event_ids", "error", "event_type", "since", "until", "fingerprint", "cutoff", "operation")
        )
        batch = explained(postgres_log, many, "redrive.find", group_id=group, after=100, most=50, **which)
        rows = [node["Actual Rows"] for node in batch if node.get("Relation Name") == "deliveries"]
        assert rows == [50], "a batch reads itself"


@pytest.mark.shows("O04", "X10")
def test_a_worker_role_runs_operations_and_mends(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    postgres_log.create_group("orders", "g", retry=penstock.Retry(max_attempts=1))
    postgres_log.create_group("orders", "lake")
    ids = [postgres_log.append("orders", {"n": n}, type="t").event_id for n in range(4)]
    with worker_role(postgres_log_url) as (url, _), penstock.open(url) as log:
        lease = log.claim("orders", "g", claimed_by="w")
        assert lease is not None
        lease.settle(dead={one: "no" for one in ids})
        info = log.operation("redrive", "orders", "g", event_ids=ids[:2]).start().run(timeout=20)
        assert (info.state, info.moved) == ("done", 2)
        claim_and_settle_all(log, "orders", "g")
        assert log.operation("replay", "orders", "g", all=True).start().run(timeout=20).moved == 2
        assert log.operation("purge", "orders", "g", event_ids=ids[2:3]).start().run(timeout=20).moved == 1
        log.note_fingerprint("orders", "g", "none", note="x")
        assert not log.mend("orders", "g", ids[3], {"n": 100}).duplicate
        assert log.operation("rewind", "orders", "g", to=0).start().run(timeout=20).state == "done"
        assert not log.run_operations()
