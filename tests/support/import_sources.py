"""Sources to import from: tables of an outbox and of Vulkan, filled with every state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

import penstock
from penstock.core.group import check_settings
from penstock.core.imported import Target
from penstock.imports import run
from penstock.imports.outbox import Outbox
from penstock.imports.source import Source

OUTBOX = """
create table openoutbox_events (
  event_id uuid primary key default gen_random_uuid(), event_type text, payload bytea, headers jsonb, metadata jsonb,
  partition_key text, ordering_key text, attempts int default 0, last_error text, available_at timestamptz,
  created_at timestamptz default clock_timestamp(), state text, claimed_at timestamptz, claimed_by text,
  published_at timestamptz)
"""
# Mostly finished, dead ones everywhere, some that wait below what is finished, and a tail that waits.
FILL = """
insert into openoutbox_events (event_type, payload, headers, ordering_key, state, attempts, last_error, available_at)
select 'order.created', convert_to(json_build_object('n', n)::text, 'UTF8'), '{"tenant": "eu"}', 'k' || n %% 7,
       s.state, case s.state when 'DEAD' then 3 when 'PENDING' then n %% 3 else 1 end,
       case when s.state = 'DEAD' or (s.state = 'PENDING' and n %% 3 > 0) then 'boom ' || n end,
       case when n %% 50 = 0 then timestamptz '2040-01-01 00:00:00+00' end
  from generate_series(1, %(rows)s) n
 cross join lateral (select case when n %% 11 = 0 then 'DEAD' when n %% 9 = 0 or n > %(rows)s * 0.9 then 'PENDING'
                                 when n %% 13 = 0 then 'CLAIMED' else 'PUBLISHED' end as state) s
"""


def execute(url: str, sql: str, params: Mapping[str, Any] | None = None) -> list[Any]:
    """Run a statement in the source; return its rows, if it has any."""
    with psycopg.connect(url) as connection:
        cursor = connection.execute(sql, params)
        return cursor.fetchall() if cursor.description is not None else []


def fill_outbox(url: str, rows: int) -> None:
    execute(url, OUTBOX)
    execute(url, FILL, {"rows": rows})


def target(stream: str = "orders", group: str = "relay", start: Any = "beginning", **settings: Any) -> Target:
    return Target(stream, group, start, check_settings(**settings))


def outbox(url: str, **options: Any) -> Outbox:
    wanted = options.pop("target", None) or target()
    return Outbox(url, wanted, **options)


def import_all(log: penstock.Log, source: Source, *, skip_published: bool = False) -> run.Report:
    """Run an import to its end."""
    try:
        return run.run(log, source, skip_published=skip_published, by="ada", show=lambda *_: None)
    finally:
        source.close()


def outbox_states(url: str) -> dict[str, tuple[Any, ...]]:
    """What the table says of every event, in our words: state, attempts in all, error."""
    rows = execute(url, "select event_id, state, attempts, last_error from openoutbox_events")
    ours = {"CLAIMED": "PENDING", "PUBLISHED": "PUBLISHED", "PENDING": "PENDING", "DEAD": "DEAD"}
    return {
        str(event_id): (ours[state], 1 if state == "PUBLISHED" else attempts, None if state == "PUBLISHED" else error)
        for event_id, state, attempts, error in rows
    }


def log_states(log: penstock.Log, stream: str = "orders", group: str = "relay") -> dict[str, tuple[Any, ...]]:
    """The same, as the log has it."""
    found = log.deliveries(stream, group, limit=100_000)
    assert len(found) < 100_000
    return {str(one.event_id): (str(one.state), one.total_attempts, one.last_error) for one in found}


def claimable(log: penstock.Log, stream: str = "orders", group: str = "relay") -> set[str]:
    """Claim and finish all that is due; the ids of it."""
    ids: list[str] = []
    while (lease := log.claim(stream, group, limit=1_000, claimed_by="w")) is not None:
        ids += [str(event.event_id) for event in lease.events]
        lease.settle()
    assert len(ids) == len({*ids}), "nothing is delivered twice"
    return {*ids}
