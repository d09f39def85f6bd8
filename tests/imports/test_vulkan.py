"""Vulkan's tables move in, in both layouts: topics become streams, consumer groups keep all their states."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from psycopg import sql

import penstock
from penstock.core.group import check_settings
from penstock.errors import InvalidSource
from penstock.imports import run
from penstock.imports.source import GroupCount
from penstock.imports.vulkan import Vulkan
from tests.support.import_sources import claimable, execute, import_all

pytestmark = pytest.mark.shows("R13")
OLDER = """
create schema vulkan;
create table vulkan.events ("offset" bigint primary key, topic text not null, routing_key text, payload jsonb,
                            headers jsonb, created_at timestamptz default now());
create table vulkan.deliveries (event_offset bigint, consumer_group text, status text, attempts int default 0,
                                run_at timestamptz default now(), locked_at timestamptz, last_error text,
                                updated_at timestamptz default now(), primary key (event_offset, consumer_group));
insert into vulkan.events ("offset", topic, routing_key, payload, headers)
select n, case when n % 4 = 0 then 'mails' else 'orders' end, 'order.created', jsonb_build_object('n', n), '{"a": "b"}'
  from generate_series(1, 120) n;
insert into vulkan.deliveries (event_offset, consumer_group, status, attempts, last_error, run_at)
select e."offset", g.name,
       case when (e."offset" + length(g.name)) % 10 = 0 then 'dead' when e."offset" > 100 then 'ready'
            when (e."offset" + length(g.name)) % 17 = 0 then 'processing' else 'done' end,
       case when (e."offset" + length(g.name)) % 10 = 0 then 5 else 0 end,
       case when (e."offset" + length(g.name)) % 10 = 0 then 'no' end,
       case when e."offset" = 117 then timestamptz '2040-01-01 00:00:00+00' else now() end
  from vulkan.events e cross join (values ('fraud'), ('ledger-2')) as g(name)
 where not (g.name = 'fraud' and e."offset" = 7);
"""
NEWER = """
create schema vulkan;
create table vulkan.orders_message_log ("offset" bigint primary key, routing_key text, payload bytea, headers jsonb,
                                        created_at timestamptz default now());
create table vulkan.orders_delivery (message_offset bigint, consumer_group text, status text, attempts int,
                                     run_at timestamptz, last_error text, updated_at timestamptz default now());
create table vulkan.orders_cursor (consumer_group text primary key, "offset" bigint);
insert into vulkan.orders_message_log ("offset", routing_key, payload)
select n, 'order.created', convert_to('{"n": ' || n || '}', 'UTF8') from generate_series(1, 50) n;
insert into vulkan.orders_cursor values ('fraud', 40), ('new', 0);
insert into vulkan.orders_delivery (message_offset, consumer_group, status, attempts, run_at, last_error)
values (3, 'fraud', 'dead', 5, now(), 'no'), (9, 'fraud', 'ready', 2, now(), 'slow'),
       (11, 'fraud', 'processing', 1, now(), null),
       (12, 'fraud', 'done', 3, now(), null);
"""
OURS = {"ready": "PENDING", "processing": "PENDING", "done": "PUBLISHED", "dead": "DEAD"}


def vulkan(url: str, **options: Any) -> Vulkan:
    return Vulkan(url, start="beginning", settings=check_settings(), **options)


def counts_of(source: Vulkan) -> list[GroupCount]:
    with closing(source):
        return source.count()


def states(log: penstock.Log, stream: str, group: str) -> dict[int, tuple[str, str | None]]:
    return {one.json()["n"]: (str(one.state), one.last_error) for one in log.deliveries(stream, group, limit=1_000)}


@pytest.mark.parametrize("topic", ["orders", "mails"])
@pytest.mark.parametrize("group", ["fraud", "ledger-2"])
def test_every_group_has_the_states_it_had(
    log: penstock.Log, postgres_url: str, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 25)
    execute(postgres_url, OLDER)
    report = import_all(log, vulkan(postgres_url))
    query = """
        select e."offset", coalesce(d.status, 'done'), d.last_error from vulkan.events e
          left join vulkan.deliveries d on d.event_offset = e."offset" and d.consumer_group = %(group)s
         where e.topic = %(topic)s"""
    rows = execute(postgres_url, query, {"topic": topic, "group": group})
    assert states(log, topic, group) == {offset: (OURS[status], error) for offset, status, error in rows}
    assert report.complete and report.tally.copied == 120 and len(report.groups) == 4
    assert [one.json()["n"] for one in log.read(topic)] == sorted(offset for offset, *_ in rows)
    due = {offset for offset, status, _ in rows if status in ("ready", "processing") and offset != 117}
    ids = claimable(log, topic, group)
    assert {one.json()["n"] for one in log.read(topic) if str(one.event_id) in ids} == due


def test_the_newer_layout_knows_what_is_done_by_its_cursors(log: penstock.Log, postgres_url: str) -> None:
    execute(postgres_url, NEWER)
    report = import_all(log, vulkan(postgres_url))
    assert report.complete
    fraud = states(log, "orders", "fraud")
    assert fraud[3] == ("DEAD", "no") and fraud[9] == ("PENDING", "slow") and fraud[11] == ("PENDING", None)
    assert {n for n, (state, _) in fraud.items() if state == "PENDING"} == {9, 11, *range(41, 51)}
    assert {state for state, _ in states(log, "orders", "new").values()} == {"PENDING"}
    assert next(one for one in log.deliveries("orders", "fraud") if one.offset == 9).total_attempts == 2


def test_topics_and_names_can_be_chosen(log: penstock.Log, postgres_url: str) -> None:
    execute(postgres_url, OLDER)
    execute(postgres_url, "update vulkan.events set topic = 'no name' where topic = 'mails'")
    execute(
        postgres_url, "update vulkan.deliveries set consumer_group = 'ledger two' where consumer_group = 'ledger-2'"
    )
    with pytest.raises(InvalidSource, match=r"--stream TOPIC=NAME, --group THEIRS=NAME"):
        vulkan(postgres_url)
    with pytest.raises(InvalidSource, match="There is no topic 'nothing'; there are no name, orders"):
        vulkan(postgres_url, topics=["nothing"])
    import_all(
        log, vulkan(postgres_url, topics=["no name"], streams={"no name": "post"}, groups={"ledger two": "ledger"})
    )
    assert log.streams() == ["post"] and {one.group_name for one in log.groups()} == {"fraud", "ledger"}


def test_one_of_several_groups_can_be_begun_again(log: penstock.Log, postgres_url: str) -> None:
    execute(postgres_url, OLDER)
    import_all(log, vulkan(postgres_url, topics=["orders"]))
    before = states(log, "orders", "fraud")
    finished = claimable(log, "orders", "ledger-2")
    log.delete_group("orders", "fraud")
    import_all(log, vulkan(postgres_url, topics=["orders"]))
    assert states(log, "orders", "fraud") == before and not any(one.paused for one in log.groups())
    assert finished and not claimable(log, "orders", "ledger-2"), "the other is left as it is"


def test_two_groups_do_not_get_one_name(postgres_url: str) -> None:
    execute(postgres_url, OLDER)
    with pytest.raises(InvalidSource, match="Two groups would be 'one' on 'orders'"):
        vulkan(postgres_url, topics=["orders"], groups={"fraud": "one", "ledger-2": "one"})
    with pytest.raises(InvalidSource, match="Two groups would be 'fraud' on 'mails'"):
        vulkan(postgres_url, streams={"orders": "mails"})


def test_any_offset_and_any_time_is_read(log: penstock.Log, postgres_url: str) -> None:
    execute(postgres_url, OLDER)
    execute(postgres_url, "update vulkan.deliveries set event_offset = event_offset - 110, run_at = 'infinity'")
    execute(postgres_url, 'update vulkan.events set "offset" = "offset" - 110, created_at = \'294276-01-01\'')
    execute(postgres_url, "update vulkan.deliveries set run_at = '294276-01-01' where event_offset > 5")
    execute(postgres_url, "update vulkan.deliveries set run_at = '4000-01-01 BC' where event_offset = 9")
    report = import_all(log, vulkan(postgres_url))
    assert report.complete and report.tally.copied == 120
    due = "select count(*) from vulkan.deliveries where consumer_group = 'ledger-2' and status = 'processing'"
    ((worked_on,),) = execute(postgres_url, due)
    taken = claimable(log, "orders", "ledger-2") | claimable(log, "mails", "ledger-2")
    assert len(taken) == worked_on + 1, "what is due at no time is due never"


def test_deliveries_without_an_index_are_joined(postgres_url: str) -> None:
    execute(postgres_url, OLDER)
    execute(postgres_url, "alter table vulkan.deliveries drop constraint deliveries_pkey")
    with closing(vulkan(postgres_url)) as source:
        query = sql.SQL("explain ") + source._events(source._layouts[0])
        plan = "\n".join(line for (line,) in source._database.rows(query, {"topic": "orders", "after": 0}))
    assert "SubPlan" not in plan, "one scan for each event is a day for half a million"


def test_what_is_none_of_its_tables_is_said(postgres_url: str) -> None:
    with pytest.raises(InvalidSource, match="it has no tables"):
        vulkan(postgres_url)
    execute(postgres_url, OLDER)
    execute(postgres_url, "update vulkan.deliveries set status = 'lost' where event_offset < 4")
    with pytest.raises(InvalidSource, match=r"'lost' \(3\).*--state theirs=PUBLISHED"):
        counts_of(vulkan(postgres_url))
    counts = counts_of(vulkan(postgres_url, states={"lost": "dead"}))
    assert sum(sum(one.states.values()) for one in counts) == 240
