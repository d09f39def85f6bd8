-- name: stage.begin
insert into penstock.staging_attempts (attempt, writer, batch, started_at)
values (%(attempt)s, %(writer)s, %(batch)s, %(now)s);

-- name: stage.hold
-- Nobody drops these attempts before the transaction ends.
select attempt from penstock.staging_attempts where attempt = any(%(attempts)s::uuid[]) for key share;

-- name: stage.copy
copy penstock.staged ({{event_fields}}, attempt, source_offset) from stdin (format binary);

-- name: stage.claim_batch
-- One writer commits a batch once; a second one waits here for the first, and then finds that it is done.
insert into penstock.writes as w (stream, writer, batch, events) values (%(stream)s, %(writer)s, %(batch)s, %(events)s)
on conflict (stream, writer) do update
   set batch = excluded.batch, events = excluded.events, committed_at = excluded.committed_at
 where w.batch < excluded.batch;

-- name: stage.newest_batch
select batch from penstock.writes where stream = %(stream)s and writer = %(writer)s;

-- name: stage.count
select count(*) as events from penstock.staged where attempt = %(attempt)s;

-- name: stage.append
-- Offsets are drawn here, in the order in which the task brought its rows.
insert into penstock.events ({{event_fields}})
select {{event_fields}}
  from penstock.staged where attempt = %(attempt)s order by position
on conflict (event_id) do nothing;

-- name: stage.drop_failed
-- Events that were made of these.
delete from penstock.staged where attempt = any(%(attempts)s::uuid[]) and source_offset = any(%(offsets)s::bigint[]);

-- name: stage.taken
-- An event id that belongs to another event already.
select s.event_id, e.stream
  from penstock.staged s join penstock.events e on e.event_id = s.event_id
 where s.attempt = %(attempt)s
   and (s.stream, s.event_type, s.payload) is distinct from (e.stream, e.event_type, e.payload) limit 1;

-- name: stage.taken_by
-- Staged events whose ids belong to other events already, and what they were made of.
select s.source_offset, s.event_id, e.stream
  from penstock.staged s join penstock.events e on e.event_id = s.event_id
 where s.attempt = any(%(attempts)s::uuid[]) and (s.stream, s.event_type, s.payload) is distinct from (e.stream, e.event_type, e.payload);

-- name: stage.taken_twice
-- Staged events whose ids belong to other staged events, brought earlier, and what they were made of.
select o.source_offset from (
    select s.source_offset, s.event_id, (s.stream, s.event_type, s.payload) is distinct from
           (first_value(s.stream) over w, first_value(s.event_type) over w, first_value(s.payload) over w) as other
      from penstock.staged s where s.attempt = any(%(attempts)s::uuid[])
    window w as (partition by s.event_id order by s.position)) o
 where o.other and not exists (select 1 from penstock.events e where e.event_id = o.event_id);

-- name: stage.leftovers
-- What nobody will name any more: attempts of batches that are done, and those that were left behind long ago.
-- (Pipelines drop their own: theirs live as long as their leases.)
select attempt from penstock.staging_attempts
 where (writer = %(writer)s and batch <= %(batch)s)
    or (writer <> 'pipeline' and started_at < %(now)s::timestamptz - make_interval(secs => %(kept_seconds)s))
   for update skip locked;

-- name: stage.drop_attempts
-- First the attempts, so that whoever is still staging under one has finished or is refused …
delete from penstock.staging_attempts where attempt = any(%(attempts)s::uuid[]);

-- name: stage.drop_rows
-- … then, in a statement that sees all they did, their rows.
delete from penstock.staged where attempt = any(%(attempts)s::uuid[]);

-- name: stage.known_writers
select writer from penstock.writes where stream = %(stream)s and writer = any(%(writers)s::text[]);
