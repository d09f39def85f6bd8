-- name: panel.groups
-- Every group: what waits, is in work, retries and is dead.
select d.stream, d.group_name,
       count(*) filter (where d.state = 'PENDING') as pending, count(*) filter (where d.state = 'CLAIMED') as claimed,
       count(*) filter (where d.state = 'PENDING' and d.failures > 0) as retrying,
       count(*) filter (where d.state = 'DEAD') as dead,
       count(*) filter (where d.state in ('PENDING', 'CLAIMED')) as lag
  from penstock.delivery d
 where d.state in ('PENDING', 'CLAIMED', 'DEAD') and (%(stream)s::text is null or d.stream = %(stream)s)
 group by d.stream, d.group_name order by d.stream, d.group_name;

-- name: panel.problems
-- Groups that are paused, or whose target is down.
select g.stream, g.group_name, g.paused, g.pause_reason, c.opened_at as down_since, c.last_error
  from penstock.groups g left join penstock.circuits c on c.group_id = g.group_id
 where g.paused or c.group_id is not null order by g.stream, g.group_name;

-- name: panel.streams
-- How many events every stream has: counted up to the last mark, and the rest.
select stream, sum(events)::bigint as events from (
  select stream, events from penstock.tally_now
  union all
  select stream, 1 from penstock.events where "offset" > (select coalesce(max(upto), 0) from penstock.tally_mark)) counted
 group by stream order by stream;

-- name: panel.types
-- How many events of each type a stream has: counted up to the last mark, and the rest.
select event_type, sum(events)::bigint as events from (
  select event_type, events from penstock.tally_now where stream = %(stream)s
  union all
  select event_type, 1 from penstock.events
   where stream = %(stream)s and "offset" > (select coalesce(max(upto), 0) from penstock.tally_mark)) counted
 group by event_type order by events desc, event_type;

-- name: panel.appended
-- What was appended to a stream, by buckets.
select to_timestamp(floor(extract(epoch from at) / %(step)s) * %(step)s) as at, sum(appended)::bigint as appended
  from penstock.metric where stream = %(stream)s and at >= %(since)s and at < %(until)s
 group by 1 order by 1;

-- name: panel.numbers
-- What a group did and how it stood, by buckets, as recorded once a minute.
select to_timestamp(floor(extract(epoch from at) / %(step)s) * %(step)s) as at, sum(published)::bigint as published,
       sum(failed)::bigint as failed, sum(dead)::bigint as dead, max(lag) as lag, max(oldest_seconds) as oldest_seconds
  from penstock.metric where group_id = %(group_id)s and at >= %(since)s and at < %(until)s
 group by 1 order by 1;

-- name: panel.policy
-- A group as stored.
select * from penstock.groups where group_id = %(group_id)s;

-- name: panel.runs
-- Runs that have not ended, the newest first.
select id, name, app, engine, version, host, pid, groups, started_at, heartbeat_at, wanted
  from penstock.runs where ended_at is null order by id desc limit 1000;

-- name: panel.tokens
-- Tokens, without what is stored of their secrets.
select name, scopes, created_at, created_by, revoked_at from penstock.tokens order by created_at, name;
