"""An outbox table moves in: every delivery ends in the state that the table says, and only what waits is delivered."""

from __future__ import annotations

import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

import penstock
from penstock.errors import ImportConflict
from penstock.imports import run
from tests.support.import_sources import (
    claimable,
    execute,
    fill_outbox,
    import_all,
    log_states,
    outbox,
    outbox_states,
    target,
)
from tests.support.waiting import wait_until

# What somebody was working on is due at once. A key waits for its first event that is not due, if there is an order.
DUE = """
with waiting as (
  select event_id, ordering_key, created_at, state = 'CLAIMED' or available_at is null as due
    from openoutbox_events where state in ('PENDING', 'CLAIMED'))
select event_id from waiting w
 where due and not (%(ordered)s and exists (
   select 1 from waiting o where o.ordering_key = w.ordering_key and o.created_at < w.created_at and not o.due))
"""
pytestmark = pytest.mark.shows("R13")


@pytest.mark.parametrize("settings", [{}, {"ordering": "key", "lanes": 4}, {"keyed": True}], ids=str)
def test_every_delivery_ends_in_the_state_of_the_source(
    log: penstock.Log, postgres_url: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 100)
    fill_outbox(postgres_url, 700)
    report = import_all(log, outbox(postgres_url, target=target(**settings)))
    theirs = outbox_states(postgres_url)
    assert log_states(log) == theirs
    assert report.complete and report.tally.copied == 700
    (group,) = report.groups
    assert group.now is not None and sum(group.now.values()) == 700
    assert claimable(log) == {str(one) for (one,) in execute(postgres_url, DUE, {"ordered": "ordering" in settings})}


def test_events_keep_their_fields_ids_and_order(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 30)
    import_all(log, outbox(postgres_url))
    rows = execute(
        postgres_url, "select event_id, payload, ordering_key, created_at from openoutbox_events order by created_at"
    )
    events = log.read("orders")
    assert [(one.event_id, one.payload, one.ordering_key) for one in events] == [tuple(row[:3]) for row in rows]
    assert events[0].event_type == "order.created" and events[0].headers == {"tenant": "eu"}
    assert events[0].metadata["penstock-import"]["created_at"] == rows[0][3].astimezone(UTC).isoformat()


def test_what_was_tried_before_is_history_and_a_dead_letter_can_be_redriven(
    log: penstock.Log, postgres_url: str
) -> None:
    fill_outbox(postgres_url, 40)
    execute(postgres_url, "alter table openoutbox_events add dead_at timestamptz")
    died = datetime(2024, 5, 1, 12, tzinfo=UTC)
    execute(postgres_url, "update openoutbox_events set dead_at = %(at)s where state = 'DEAD'", {"at": died})
    import_all(log, outbox(postgres_url))
    dead = log.deliveries("orders", "relay", state="DEAD")
    assert {(one.attempts, one.failures, one.dead_at, one.reason) for one in dead} == {(3, 3, died, "imported")}
    assert all(one.fingerprint for one in dead) and dead[0].last_error == "boom 11"
    history = log.delivery("orders", "relay", dead[0].event_id).history
    assert [(one.outcome, one.error) for one in history][-1] == ("dead", "boom 11")
    tried = next(one for one in log.deliveries("orders", "relay", state="PENDING") if one.total_attempts == 2)
    assert tried.attempts == tried.failures == 0, "it may be tried as often as a new one"
    line = log.delivery("orders", "relay", tried.event_id).history[-1]
    assert (line.outcome, line.attempt, line.by, line.error) == ("imported", 2, "ada", tried.last_error)
    assert log.redrive("orders", "relay", all=True).count == len(dead)
    assert {str(one.event_id) for one in dead} <= claimable(log)


def test_the_second_vocabulary_is_known(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 60)
    theirs = outbox_states(postgres_url)
    execute(
        postgres_url,
        """
        alter table openoutbox_events rename state to status;
        alter table openoutbox_events rename claimed_at to locked_at;
        alter table openoutbox_events rename claimed_by to locked_by;
        alter table openoutbox_events rename published_at to delivered_at;
        update openoutbox_events set status = case status when 'CLAIMED' then 'DELIVERING'
                                                          when 'PUBLISHED' then 'DELIVERED' else status end;
        """,
    )
    import_all(log, outbox(postgres_url))
    assert log_states(log) == theirs


def test_a_table_made_at_home_is_mapped(log: penstock.Log, postgres_url: str) -> None:
    execute(
        postgres_url,
        """
        create table "Mail Outbox" (id bigserial primary key, body jsonb, kind text, sent_at timestamp, tries int);
        insert into "Mail Outbox" (body, kind, sent_at, tries)
        select jsonb_build_object('n', n), 'mail.sent', case when n <= 7 then now() end,
               case when n = 9 then 5 else 0 end
          from generate_series(1, 10) n;
        """,
    )
    report = import_all(
        log,
        outbox(
            postgres_url,
            table='"Mail Outbox"',
            columns={"payload": "body", "event_type": "kind", "attempts": "tries", "event_id": "id"},
            published_when="sent_at is not null -- 100% of them",
            dead_when="tries >= 5",
        ),
    )
    assert report.groups[0].now == {"PENDING": 2, "CLAIMED": 0, "PUBLISHED": 7, "DEAD": 1}
    events = log.read("orders")
    assert [one.json()["n"] for one in events] == [*range(1, 11)]
    assert events[3].metadata["penstock-id"] == "4", "the id as it was given"
    other = import_all(
        log,
        outbox(postgres_url, table='"Mail Outbox"', columns={"payload": "body"}, published_when="false",
               default_type="mail", target=target("copies")),
    )  # fmt: skip
    assert other.tally.copied == 10 and other.tally.known == 0, "made of the primary key, in another stream"


def test_finished_events_cost_no_row_each(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 20)
    execute(postgres_url, "update openoutbox_events set state = 'PUBLISHED'")
    execute(postgres_url, "update openoutbox_events set state = 'DEAD' where ordering_key = 'k3'")
    import_all(log, outbox(postgres_url))
    with log.store.transaction(write=False) as tx:
        group = tx.rows("group.find", stream="orders", group_name="relay", lease=None)[0]
        offsets = [event.offset for event in log.read("orders")]
        rows = tx.rows("import.with_rows", group_id=group.group_id, offsets=offsets)
    dead = log.deliveries("orders", "relay", state="DEAD")
    assert {row.offset for row in rows} == {one.offset for one in dead} and len(dead) == 3
    assert log.stats().groups[0].published == 17


def test_finished_events_can_be_left_out(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 100)
    report = import_all(log, outbox(postgres_url), skip_published=True)
    theirs = {one: said for one, said in outbox_states(postgres_url).items() if said[0] != "PUBLISHED"}
    assert log_states(log) == theirs and report.complete
    assert report.tally.skipped == 100 - len(theirs)


def test_a_complete_import_is_not_done_again(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 50)
    first = import_all(log, outbox(postgres_url))
    claimable(log)
    again = import_all(log, outbox(postgres_url))
    assert again.before and not first.before and again.tally.stored() == first.tally.stored()
    assert len(log.read("orders")) == 50
    assert claimable(log) == set()


def test_events_of_the_application_are_neither_lost_nor_finished(
    log: penstock.Log, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the import, while it copies and while it settles: whatever is not in the source waits for the group."""
    monkeypatch.setattr(run, "IMPORT_BATCH", 20)
    log.create_group("orders", "other")
    own = {str(log.append("orders", {}, type="t").event_id) for _ in range(3)}
    fill_outbox(postgres_url, 200)
    execute(postgres_url, "update openoutbox_events set state = 'PUBLISHED', available_at = null")

    def append_one(*_: Any) -> None:
        own.add(str(log.append("orders", {}, type="t").event_id))

    source = outbox(postgres_url)
    run.run(log, source, skip_published=False, by="ada", show=append_one)
    source.close()
    assert len(own) > 10
    assert claimable(log) == own
    assert len(claimable(log, group="other")) == 200 + len(own), "another group gets everything"


def test_an_open_append_holds_the_end_of_an_import_back(postgres_log: penstock.Log, postgres_url: str) -> None:
    """Its number lies below those of the import, and nobody sees it yet: it must not be passed."""
    import psycopg

    fill_outbox(postgres_url, 40)
    execute(postgres_url, "update openoutbox_events set state = 'PUBLISHED'")
    waits = threading.Event()
    with psycopg.connect(postgres_log.store.url) as connection:
        mine = postgres_log.append("orders", {}, type="t", connection=connection)
        source = outbox(postgres_url)
        importing = threading.Thread(
            target=run.run,
            args=(postgres_log, source),
            kwargs={
                "skip_published": False,
                "by": "ada",
                "show": lambda what, *_: waits.set() if what.startswith("waiting") else None,
            },
        )
        importing.start()
        wait_until(waits.is_set, "the import to wait for the open append")
        assert postgres_log.groups("orders")[0].paused
        connection.commit()
    importing.join(60)
    source.close()
    assert not importing.is_alive()
    assert claimable(postgres_log) == {str(mine.event_id)}


def test_events_that_were_there_before_can_be_left_out(log: penstock.Log, postgres_url: str) -> None:
    log.append_many("orders", [{"payload": {}, "type": "t"}] * 5)
    fill_outbox(postgres_url, 50)
    import_all(log, outbox(postgres_url, target=target(start="end")))
    assert log_states(log) == outbox_states(postgres_url)


def test_what_waits_is_delivered_though_its_event_lies_before_the_start(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 50)
    import_all(log, outbox(postgres_url))
    import_all(log, outbox(postgres_url, target=target(group="later", start="end")))
    theirs = {one: was for one, was in outbox_states(postgres_url).items() if was[0] != "PUBLISHED"}
    assert log_states(log, group="later") == theirs
    assert claimable(log, group="later") == claimable(log)


def test_an_empty_table_makes_an_empty_group(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 0)
    assert import_all(log, outbox(postgres_url)).complete
    own = log.append("orders", {}, type="t")
    assert claimable(log) == {str(own.event_id)}


def test_a_group_that_exists_is_refused(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 10)
    log.create_group("orders", "relay")
    with pytest.raises(ImportConflict, match="exists, and is not of this import"):
        import_all(log, outbox(postgres_url))
    assert log.read("orders") == [] and not log.groups("orders")[0].paused


def test_nobody_claims_from_a_group_before_it_is_complete(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 60)
    seen: list[Any] = []

    def claim(what: str, *_: Any) -> None:
        if log.groups("orders")[0].paused:
            seen.append((what, log.claim("orders", "relay", limit=10, claimed_by="w")))

    source = outbox(postgres_url)
    run.run(log, source, skip_published=False, by="ada", show=claim)
    source.close()
    assert {what for what, _ in seen} == {"copying", "settling"} and {lease for _, lease in seen} == {None}


def test_a_group_that_somebody_resumes_too_early_stops_the_import(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 60)
    source = outbox(postgres_url)
    with pytest.raises(ImportConflict, match="was resumed before its import was complete"):
        run.run(log, source, skip_published=False, by="ada", show=lambda *_: log.resume("orders", "relay"))
    source.close()
    log.delete_group("orders", "relay")
    import_all(log, outbox(postgres_url))
    assert log_states(log) == outbox_states(postgres_url), "begun again, with the events that were there"


def test_a_process_that_another_has_overtaken_stores_nothing(
    log: penstock.Log, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 20)
    fill_outbox(postgres_url, 100)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def overtake(*_: Any) -> None:
        with closing(outbox(postgres_url)) as other, pytest.raises(KeyboardInterrupt):
            run.run(log, other, skip_published=False, by="ada", show=stop)

    with closing(outbox(postgres_url)) as source, pytest.raises(ImportConflict, match="Another process"):
        run.run(log, source, skip_published=False, by="ada", show=overtake)
    assert len(log.read("orders")) == 40, "20 of each"
    assert import_all(log, outbox(postgres_url)).tally.copied == 100
    assert log_states(log) == outbox_states(postgres_url)


def test_two_processes_at_once_store_everything_once(
    log: penstock.Log, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 20)
    fill_outbox(postgres_url, 200)
    second: list[Any] = []

    def overtake(what: str, done: int, total: int | None) -> None:
        if done == 60 and not second:
            second.append(import_all(log, outbox(postgres_url)))

    source = outbox(postgres_url)
    with pytest.raises(ImportConflict, match="Another process"):
        run.run(log, source, skip_published=False, by="ada", show=overtake)
    source.close()
    assert second[0].complete and log_states(log) == outbox_states(postgres_url)


def test_an_id_that_another_stream_has_is_refused(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 5)
    taken = execute(postgres_url, "select event_id from openoutbox_events order by created_at desc limit 1")[0][0]
    log.append("elsewhere", {}, type="t", event_id=uuid.UUID(str(taken)))
    with pytest.raises(ImportConflict, match="is in the stream 'elsewhere' already"):
        import_all(log, outbox(postgres_url))
    assert log.read("orders") == []


def test_rows_by_a_text_of_fixed_length_are_read_once_though_interrupted(
    log: penstock.Log, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "IMPORT_BATCH", 5)
    fill_outbox(postgres_url, 20)
    execute(postgres_url, "alter table openoutbox_events add number char(9)")
    execute(postgres_url, "update openoutbox_events set number = substr(event_id::text, 1, 7)")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with closing(outbox(postgres_url, order_by=["number"])) as source, pytest.raises(KeyboardInterrupt):
        run.run(log, source, skip_published=False, by="ada", show=stop)
    report = import_all(log, outbox(postgres_url, order_by=["number"]))
    assert report.complete and (report.tally.copied, report.tally.known) == (20, 0)


def test_a_time_that_no_calendar_has_stops_nothing_and_never_stays_never(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 4)
    execute(postgres_url, "update openoutbox_events set state = 'PENDING', attempts = 0, last_error = null")
    times = ("infinity", "294276-01-01 00:00:00+00", "-infinity", "4000-01-01 00:00:00+00 BC")
    rows = execute(postgres_url, "select event_id from openoutbox_events order by created_at")
    for (event_id,), time in zip(rows, times, strict=True):
        change = "update openoutbox_events set available_at = %(at)s, created_at = %(at)s where event_id = %(id)s"
        execute(postgres_url, change, {"at": time, "id": event_id})
    assert import_all(log, outbox(postgres_url)).complete
    assert claimable(log) == {str(event_id) for (event_id,) in rows[2:]}


def test_a_database_without_an_encoding_is_read(log: penstock.Log, postgres_url: str) -> None:
    name = f"t_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        create = "create database {} encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'"
        connection.execute(sql.SQL(create).format(sql.Identifier(name)))
    url = f"{postgres_url.rpartition('/')[0]}/{name}"
    fill_outbox(url, 20)
    assert import_all(log, outbox(url)).complete
    assert len(log_states(log)) == 20


def test_an_error_without_a_word_is_none(log: penstock.Log, postgres_url: str) -> None:
    fill_outbox(postgres_url, 11)
    execute(postgres_url, "update openoutbox_events set last_error = ''")
    import_all(log, outbox(postgres_url))
    errors = {one.last_error for one in log.deliveries("orders", "relay")}
    assert errors == {None, "The source does not say why."}
