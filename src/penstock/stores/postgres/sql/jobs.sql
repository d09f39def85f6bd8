-- name: jobs.due
-- Of the streams of these types: where their first job to claim is, and when another will be due; before them one row that
-- says how far the log was.
select * from penstock.jobs_due(%(known)s::text[], %(queue)s, %(types)s::text[], %(since)s, %(now)s::timestamptz);

-- name: jobs.claim_first
-- The same, and a claim from the most urgent stream, in one statement, where it is simple.
select (select wanted from penstock.runs where id = %(run)s) as wanted, c.*
  from penstock.claim_first_job(%(known)s::text[], %(queue)s, %(types)s::text[], %(since)s, %(now)s::timestamptz,
                                %(claimed_by)s, %(seconds)s, %(most)s, %(secret)s, %(run)s) c;

-- name: jobs.find
-- A job by its id.
select e.stream, e."offset" from penstock.events e where e.event_id = %(event_id)s and e.stream like 'jobs:%%';

-- name: jobs.show
-- A job as its group sees it, with what it noted; without a group it waits.
select e.stream, e."offset", e.event_id, e.payload, e.headers::text as headers, e.metadata::text as metadata, e.created_at,
       v.state, v.attempts, v.failures, coalesce(v.available_at, e.available_at, e.created_at) as available_at, v.claimed_at,
       v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at, g.max_attempts,
       l.heartbeat_at, l.expires_at, n.progress, n.message, n.result
  from penstock.events e
  left join penstock.groups g on g.stream = e.stream and g.group_name = 'workers'
  left join lateral (select * from penstock.delivery d
                      where d.group_id = g.group_id and d."offset" = e."offset" limit 1) v on true
  left join penstock.leases l on l.id = v.lease and v.state = 'CLAIMED'
  left join penstock.job_notes n on n."offset" = e."offset"
 where e."offset" = any(%(offsets)s::bigint[])
 order by e."offset";

-- name: jobs.next
-- The jobs of a stream, from an offset on.
select e."offset" from penstock.events e
 where e.stream = %(stream)s and e."offset" > %(after)s order by e."offset" limit %(limit)s;

-- name: jobs.newest
-- The jobs of a stream below an offset, the newest first.
select e."offset" from penstock.events e
 where e.stream = %(stream)s and e."offset" < %(before)s order by e.stream desc, e."offset" desc limit %(limit)s;

-- name: jobs.newest_dead
-- Those of them that are dead.
select d."offset" from penstock.groups g join penstock.deliveries d on d.group_id = g.group_id
 where g.stream = %(stream)s and g.group_name = 'workers' and d.state = 'DEAD' and d."offset" < %(before)s
 order by d."offset" desc limit %(limit)s;

-- name: jobs.panel_types
-- Jobs that wait, run and are dead, by stream: jobs:<queue>:<priority>:<type>.
select d.stream, count(*) filter (where d.state = 'PENDING') as pending, count(*) filter (where d.state = 'CLAIMED') as claimed,
       count(*) filter (where d.state = 'DEAD') as dead
  from penstock.delivery d where d.state in ('PENDING', 'CLAIMED', 'DEAD') and d.stream like 'jobs:%%'
 group by d.stream order by d.stream;

-- name: jobs.note
-- How far a job has come.
insert into penstock.job_notes as n ("offset", progress, message, updated_at)
values (%(offset)s, %(progress)s, %(message)s, %(now)s)
on conflict ("offset") do update
   set progress = coalesce(excluded.progress, n.progress), message = coalesce(excluded.message, n.message),
       updated_at = excluded.updated_at;

-- name: jobs.results
-- What finished jobs returned.
insert into penstock.job_notes as n ("offset", result, updated_at)
select r."offset", r.result, %(now)s from jsonb_to_recordset(%(rows)s::jsonb) as r("offset" bigint, result text)
on conflict ("offset") do update set result = excluded.result, updated_at = excluded.updated_at;

-- name: jobs.ask_to_cancel
insert into penstock.job_cancels ("offset", by, asked_at) values (%(offset)s, %(by)s, %(now)s)
on conflict ("offset") do update set by = excluded.by, asked_at = excluded.asked_at;

-- name: jobs.cancelled
-- Whether somebody has asked for the end of a job since it was claimed.
select 1 from penstock.job_cancels c join penstock.leases l on l.id = %(lease)s and c.asked_at >= l.claimed_at
 where c."offset" = %(offset)s;

-- name: jobs.name_reason
-- Why a job was given up.
update penstock.deliveries set reason = %(reason)s, error_code = %(reason)s where {{these_rows}} and state = 'DEAD';

-- name: unique.take
-- In neutral form, for callers' connections, too: the key is this job's, unless an unfinished one has it.
select holder from penstock.take_unique(
         cast(:queue as text), cast(:job_type as text), cast(:unique_key as text), cast(:event_id as uuid),
         cast(:seconds as double precision), cast(:now_at as timestamptz), cast(:always as boolean)) as holder;

-- name: jobs.beat
-- Extend leases; says of each that is still held whether it was extended. One whose holder settles just now is left alone.
with named as (
  select * from unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) as n(id, token)
), mine as materialized (
  select l.id from penstock.leases l join named n on n.id = l.id and n.token = l.token
   where l.outcome is null and l.expires_at > %(now)s order by l.id for update of l skip locked
), extended as (
  update penstock.leases l set expires_at = %(expires_at)s, heartbeat_at = %(now)s from mine m where l.id = m.id
  returning l.id, {{wanted_of_run}}
)
select l.id, x.id is not null as extended, x.wanted
  from named n join penstock.leases l on l.id = n.id and l.token = n.token left join extended x on x.id = l.id
 where l.outcome is null and l.expires_at > %(now)s;

-- name: jobs.to_cancel
-- Jobs and events in these leases that are to be cancelled. A range has the offsets of other streams between its own.
select l.id, c."offset" from penstock.leases l join penstock.groups g using (group_id)
 cross join lateral (select "offset" from penstock.job_cancels
                      where l.offsets is null and "offset" > l.low and "offset" <= l.high and asked_at >= l.claimed_at
                      union all
                     select "offset" from penstock.job_cancels
                      where "offset" = any(l.offsets) and asked_at >= l.claimed_at) c
  join penstock.events e on e."offset" = c."offset" and e.stream = g.stream
 where l.id = any(%(ids)s::bigint[])
 union all
select l.id, c."offset" from penstock.leases l join penstock.event_cancels c using (group_id)
 where l.id = any(%(ids)s::bigint[])
   and case when l.offsets is null then c."offset" > l.low and c."offset" <= l.high and c."offset" <> all (l.holes)
            else c."offset" = any (l.offsets) end;

-- name: jobs.declare
-- What an app says of a type; no row if it was known like that.
insert into penstock.job_types as t (queue, job_type, schema, lease_seconds, max_attempts, base_seconds, factor, cap_seconds, jitter, max_age_seconds,
                             max_in_flight, rate_per_second, keep_finished, keep_dead, declared_at)
values (%(queue)s, %(job_type)s, %(schema)s, %(lease_seconds)s, %(max_attempts)s, %(base_seconds)s, %(factor)s, %(cap_seconds)s, %(jitter)s, %(max_age_seconds)s,
        %(max_in_flight)s, %(rate_per_second)s, %(keep_finished)s, %(keep_dead)s, %(now)s)
on conflict (queue, job_type) do update
   set schema = excluded.schema, lease_seconds = excluded.lease_seconds, max_attempts = excluded.max_attempts, base_seconds = excluded.base_seconds, factor = excluded.factor, cap_seconds = excluded.cap_seconds, jitter = excluded.jitter, max_age_seconds = excluded.max_age_seconds,
       max_in_flight = excluded.max_in_flight, rate_per_second = excluded.rate_per_second,
       keep_finished = excluded.keep_finished, keep_dead = excluded.keep_dead, declared_at = excluded.declared_at
 where t.schema is distinct from excluded.schema
    or t.lease_seconds is distinct from excluded.lease_seconds
    or t.max_attempts is distinct from excluded.max_attempts
    or t.base_seconds is distinct from excluded.base_seconds
    or t.factor is distinct from excluded.factor
    or t.cap_seconds is distinct from excluded.cap_seconds
    or t.jitter is distinct from excluded.jitter
    or t.max_age_seconds is distinct from excluded.max_age_seconds
    or t.max_in_flight is distinct from excluded.max_in_flight
    or t.rate_per_second is distinct from excluded.rate_per_second
    or t.keep_finished is distinct from excluded.keep_finished
    or t.keep_dead is distinct from excluded.keep_dead
returning queue;

-- name: jobs.type
select * from penstock.job_types where queue = %(queue)s and job_type = %(job_type)s;

-- name: jobs.types
select * from penstock.job_types order by queue, job_type;

-- name: jobs.keep
-- How long jobs of a type stay.
update penstock.job_types set keep_finished = %(keep_finished)s, keep_dead = %(keep_dead)s
 where queue = %(queue)s and job_type = %(job_type)s;

-- name: limits.lock_type
-- The limits of a job type, locked: its groups are claimed from side by side.
select max_in_flight, rate_per_second from penstock.job_types where queue = %(queue)s and job_type = %(job_type)s for update;

-- name: limits.in_flight
-- How many jobs of a type are in work.
select coalesce(sum(o.members), 0)::bigint as in_flight from penstock.open_lease o
 where o.group_id = any(array(select group_id from penstock.groups
                               where stream = any(%(streams)s::text[]) and group_name = 'workers'));

-- name: limits.tokens
select tokens, at as filled_at from penstock.rates where name = %(name)s;

-- name: limits.spend
insert into penstock.rates (name, tokens, at) values (%(name)s, %(tokens)s, %(now)s)
on conflict (name) do update set tokens = excluded.tokens, at = excluded.at;
