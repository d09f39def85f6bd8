-- name: jobs.due
-- Of the streams of these types, and those that are known: where their first job to claim is, and when another will be due;
-- before them one row that says how far the log was. A stream without its group has never been claimed from. A dated or
-- cancelled job at its head does not make it older than it is. (All streams are looked at: nothing is far away here.)
with recursive priorities(p) as (
  select 0 union all select p + 1 from priorities where p < 9
), streams(stream) as (
  select value from json_each(:known) union select 'jobs:' || :queue || ':' || p || ':' || t.value from priorities, json_each(:types) t
), heads as (
  select s.stream, g.group_id, coalesce(g.paused, 0) as paused,
         coalesce((select max(f.high) from penstock_leases f
                    where f.group_id = g.group_id and f.lanes = 1 and f.lane = 0 and f.fresh = 1),
                  json_extract(g.starts, '$[0]'), 0) as cursor,
         (select min(d."offset") from penstock_deliveries d
           where d.group_id = g.group_id and d.state = 'PENDING' and d.available_at <= :now) as due,
         (select min(d.available_at) from penstock_deliveries d
           where d.group_id = g.group_id and d.state = 'PENDING' and d.available_at > :now) as due_later,
         (select coalesce((select y."offset" from (select e."offset" from penstock_events e
                                                   where e.stream = s.stream and e."offset" > x.low
                                                   order by e."offset" limit 1000) y
                            where not exists (select 1 from penstock_deliveries d
                                               where d.group_id = g.group_id and d."offset" = y."offset")
                            limit 1), x.low + 1)
            from (select min(low) as low from penstock_returned r
                   where r.group_id = g.group_id and r.available_at <= :now) x) as back,
         (select min(available_at) from penstock_returned r
           where r.group_id = g.group_id and r.available_at > :now) as back_later
    from streams s
    left join penstock_groups g on g.stream = s.stream and g.group_name = 'workers'
), found as (
  select h.*,
         coalesce((select x."offset" from (select e."offset", e.available_at from penstock_events e
                                            where e.stream = h.stream and e."offset" > h.cursor
                                            order by e."offset" limit 1000) x
                    where (x.available_at is null or x.available_at <= :now)
                      and not exists (select 1 from penstock_deliveries d
                                       where d.group_id = h.group_id and d."offset" = x."offset")
                    limit 1),
                  (select e."offset" from penstock_events e
                    where e.stream = h.stream and e."offset" > h.cursor order by e."offset" limit 1)) as next
    from heads h
)
select null as stream, null as has_group, null as paused, null as "offset", null as later_at,
       coalesce((select seq from sqlite_sequence where name = 'penstock_events'), 0) as horizon, :now as looked_at
union all
select stream, group_id is not null as has_group, paused,
       (select min(o.value) from json_each(json_array(next, due, back)) o where o.value is not null) as "offset",
       (select min(o.value) from json_each(json_array(due_later, back_later)) o where o.value is not null) as later_at,
       null, null
  from found
 where group_id is not null or next is not null;

-- name: jobs.find
-- A job by its id.
select e.stream, e."offset" from penstock_events e where e.event_id = :event_id and e.stream like 'jobs:%';

-- name: jobs.show
-- A job as its group sees it, with what it noted; without a group it waits.
select e.stream, e."offset", e.event_id, e.payload, e.headers, e.metadata, e.created_at,
       v.state, v.attempts, v.failures, coalesce(v.available_at, e.available_at, e.created_at) as available_at, v.claimed_at,
       v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at, g.max_attempts,
       l.heartbeat_at, l.expires_at, n.progress, n.message, n.result
  from json_each(:offsets) o
  join penstock_events e on e."offset" = o.value
  left join penstock_groups g on g.stream = e.stream and g.group_name = 'workers'
  left join penstock_delivery v on v.group_id = g.group_id and v.stream = e.stream and v."offset" = e."offset"
  left join penstock_leases l on l.id = v.lease and v.state = 'CLAIMED'
  left join penstock_job_notes n on n."offset" = e."offset"
 order by e."offset";

-- name: jobs.next
-- The jobs of a stream, from an offset on.
select e."offset" from penstock_events e
 where e.stream = :stream and e."offset" > :after order by e."offset" limit :limit;

-- name: jobs.newest
-- The jobs of a stream below an offset, the newest first.
select e."offset" from penstock_events e
 where e.stream = :stream and e."offset" < :before order by e.stream desc, e."offset" desc limit :limit;

-- name: jobs.newest_dead
-- Those of them that are dead.
select d."offset" from penstock_groups g join penstock_deliveries d on d.group_id = g.group_id
 where g.stream = :stream and g.group_name = 'workers' and d.state = 'DEAD' and d."offset" < :before
 order by d."offset" desc limit :limit;

-- name: jobs.panel_types
-- Jobs that wait, run and are dead, by stream: jobs:<queue>:<priority>:<type>.
select d.stream, count(*) filter (where d.state = 'PENDING') as pending, count(*) filter (where d.state = 'CLAIMED') as claimed,
       count(*) filter (where d.state = 'DEAD') as dead
  from penstock_delivery d where d.state in ('PENDING', 'CLAIMED', 'DEAD') and d.stream like 'jobs:%'
 group by d.stream order by d.stream;

-- name: jobs.note
-- How far a job has come.
insert into penstock_job_notes ("offset", progress, message, updated_at) values (:offset, :progress, :message, :now)
on conflict ("offset") do update
   set progress = coalesce(excluded.progress, progress), message = coalesce(excluded.message, message),
       updated_at = excluded.updated_at;

-- name: jobs.results
-- What finished jobs returned.
insert into penstock_job_notes ("offset", result, updated_at)
select json_extract(r.value, '$.offset'), json_extract(r.value, '$.result'), :now from json_each(:rows) r where true
on conflict ("offset") do update set result = excluded.result, updated_at = excluded.updated_at;

-- name: jobs.ask_to_cancel
insert into penstock_job_cancels ("offset", by, asked_at) values (:offset, :by, :now)
on conflict ("offset") do update set by = excluded.by, asked_at = excluded.asked_at;

-- name: jobs.cancelled
-- Whether somebody has asked for the end of a job since it was claimed.
select 1 from penstock_job_cancels c join penstock_leases l on l.id = :lease and c.asked_at >= l.claimed_at
 where c."offset" = :offset;

-- name: jobs.name_reason
-- Why a job was given up.
update penstock_deliveries set reason = :reason, error_code = :reason where {{these_rows}} and state = 'DEAD';

-- name: unique.take
-- In neutral form, for callers' connections, too: the key is this job's, unless an unfinished one has it.
insert into penstock_job_unique as u (queue, job_type, unique_key, event_id, until_at)
values (:queue, :job_type, :unique_key, :event_id, {{told_now}} + cast(:seconds * 1000000 as integer))
on conflict (queue, job_type, unique_key) do update
   set event_id = case when {{unique_is_free}} then excluded.event_id else u.event_id end,
       until_at = case when {{unique_is_free}} then excluded.until_at else u.until_at end
returning event_id;

-- name: jobs.beat
-- Extend leases; says of each that is still held whether it was extended.
update penstock_leases set expires_at = :expires_at, heartbeat_at = :now
 where outcome is null and expires_at > :now
   and exists (select 1 from json_each(:ids) i join json_each(:tokens) t on t.key = i.key
                where i.value = penstock_leases.id and t.value = penstock_leases.token)
returning id, 1 as extended, {{wanted_of_run}};

-- name: jobs.to_cancel
-- Jobs and events in these leases that are to be cancelled. A range has the offsets of other streams between its own.
select l.id, c."offset" from json_each(:ids) i join penstock_leases l on l.id = i.value
  join penstock_groups g on g.group_id = l.group_id
  join penstock_job_cancels c on c."offset" > l.low and c."offset" <= l.high and c.asked_at >= l.claimed_at
  join penstock_events e on e."offset" = c."offset" and e.stream = g.stream
 where l.offsets is null
 union all
select l.id, c."offset" from json_each(:ids) i join penstock_leases l on l.id = i.value
  join json_each(l.offsets) o join penstock_job_cancels c on c."offset" = o.value and c.asked_at >= l.claimed_at
 where l.offsets is not null
 union all
select l.id, c."offset" from json_each(:ids) i join penstock_leases l on l.id = i.value
  join penstock_event_cancels c on c.group_id = l.group_id
 where case when l.offsets is null then c."offset" > l.low and c."offset" <= l.high
                                        and c."offset" not in (select value from json_each(l.holes))
            else c."offset" in (select value from json_each(l.offsets)) end;

-- name: jobs.declare
-- What an app says of a type; no row if it was known like that.
insert into penstock_job_types as t (queue, job_type, schema, lease_seconds, max_attempts, base_seconds, factor, cap_seconds, jitter, max_age_seconds,
                             max_in_flight, rate_per_second, keep_finished, keep_dead, declared_at)
values (:queue, :job_type, :schema, :lease_seconds, :max_attempts, :base_seconds, :factor, :cap_seconds, :jitter, :max_age_seconds,
        :max_in_flight, :rate_per_second, :keep_finished, :keep_dead, :now)
on conflict (queue, job_type) do update
   set schema = excluded.schema, lease_seconds = excluded.lease_seconds, max_attempts = excluded.max_attempts, base_seconds = excluded.base_seconds, factor = excluded.factor, cap_seconds = excluded.cap_seconds, jitter = excluded.jitter, max_age_seconds = excluded.max_age_seconds,
       max_in_flight = excluded.max_in_flight, rate_per_second = excluded.rate_per_second,
       keep_finished = excluded.keep_finished, keep_dead = excluded.keep_dead, declared_at = excluded.declared_at
 where t.schema is not excluded.schema
    or t.lease_seconds is not excluded.lease_seconds
    or t.max_attempts is not excluded.max_attempts
    or t.base_seconds is not excluded.base_seconds
    or t.factor is not excluded.factor
    or t.cap_seconds is not excluded.cap_seconds
    or t.jitter is not excluded.jitter
    or t.max_age_seconds is not excluded.max_age_seconds
    or t.max_in_flight is not excluded.max_in_flight
    or t.rate_per_second is not excluded.rate_per_second
    or t.keep_finished is not excluded.keep_finished
    or t.keep_dead is not excluded.keep_dead
returning queue;

-- name: jobs.type
select * from penstock_job_types where queue = :queue and job_type = :job_type;

-- name: jobs.types
select * from penstock_job_types order by queue, job_type;

-- name: jobs.keep
-- How long jobs of a type stay.
update penstock_job_types set keep_finished = :keep_finished, keep_dead = :keep_dead
 where queue = :queue and job_type = :job_type;

-- name: limits.lock_type
-- The limits of a job type, locked: its groups are claimed from side by side.
select max_in_flight, rate_per_second from penstock_job_types where queue = :queue and job_type = :job_type;

-- name: limits.in_flight
-- How many jobs of a type are in work.
select coalesce(sum(o.members), 0) as in_flight from penstock_leases o indexed by penstock_leases_open
 where o.group_id in (select group_id from penstock_groups
                       where stream in (select value from json_each(:streams)) and group_name = 'workers')
   and o.outcome is null;

-- name: limits.tokens
select tokens, at as filled_at from penstock_rates where name = :name;

-- name: limits.spend
insert into penstock_rates (name, tokens, at) values (:name, :tokens, :now)
on conflict (name) do update set tokens = excluded.tokens, at = excluded.at;
