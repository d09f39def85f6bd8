-- name: stage.begin
insert into penstock_staging_attempts (attempt, writer, batch, started_at) values (:attempt, :writer, :batch, :now);

-- name: stage.hold
-- This transaction is the only writer: nobody drops these attempts before it ends.
select attempt from penstock_staging_attempts where attempt in (select value from json_each(:attempts));

-- name: stage.insert
insert into penstock_staged (attempt, source_offset, {{event_fields}})
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: stage.claim_batch
insert into penstock_writes (stream, writer, batch, events, committed_at) values (:stream, :writer, :batch, :events, :now)
on conflict (stream, writer) do update
   set batch = excluded.batch, events = excluded.events, committed_at = excluded.committed_at
 where batch < excluded.batch;

-- name: stage.newest_batch
select batch from penstock_writes where stream = :stream and writer = :writer;

-- name: stage.count
select count(*) as events from penstock_staged where attempt = :attempt;

-- name: stage.append
insert into penstock_events ({{event_fields}}, created_at)
select {{event_fields}}, :now
  from penstock_staged where attempt = :attempt order by position
on conflict (event_id) do nothing;

-- name: stage.drop_failed
-- Events that were made of these.
delete from penstock_staged
 where attempt in (select value from json_each(:attempts)) and source_offset in (select value from json_each(:offsets));

-- name: stage.taken
-- An event id that belongs to another event already.
select s.event_id, e.stream
  from penstock_staged s join penstock_events e on e.event_id = s.event_id
 where s.attempt = :attempt
   and (s.stream <> e.stream or s.event_type <> e.event_type or s.payload <> e.payload) limit 1;

-- name: stage.taken_by
-- Staged events whose ids belong to other events already, and what they were made of.
select s.source_offset, s.event_id, e.stream
  from penstock_staged s join penstock_events e on e.event_id = s.event_id
 where s.attempt in (select value from json_each(:attempts)) and (s.stream <> e.stream or s.event_type <> e.event_type or s.payload <> e.payload);

-- name: stage.taken_twice
-- Staged events whose ids belong to other staged events, brought earlier, and what they were made of.
select o.source_offset from (
    select s.source_offset, s.event_id, s.stream <> first_value(s.stream) over w
           or s.event_type <> first_value(s.event_type) over w or s.payload <> first_value(s.payload) over w as other
      from penstock_staged s where s.attempt in (select value from json_each(:attempts))
    window w as (partition by s.event_id order by s.position)) o
 where o.other and not exists (select 1 from penstock_events e where e.event_id = o.event_id);

-- name: stage.leftovers
-- What nobody will name any more: attempts of batches that are done, and those that were left behind long ago.
-- (Pipelines drop their own: theirs live as long as their leases.)
select attempt from penstock_staging_attempts
 where (writer = :writer and batch <= :batch)
    or (writer <> 'pipeline' and started_at < :now - cast(:kept_seconds * 1000000 as integer));

-- name: stage.drop_attempts
delete from penstock_staging_attempts where attempt in (select value from json_each(:attempts));

-- name: stage.drop_rows
delete from penstock_staged where attempt in (select value from json_each(:attempts));

-- name: stage.known_writers
select writer from penstock_writes where stream = :stream and writer in (select value from json_each(:writers));
