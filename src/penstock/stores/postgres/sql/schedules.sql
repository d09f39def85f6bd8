-- name: schedule.put
-- A schedule that says what it said keeps its next run.
insert into penstock.schedules as s (name, cron, tz, job_type, queue, priority, payload, max_attempts, created_at, next_at)
values (%(name)s, %(cron)s, %(tz)s, %(job_type)s, %(queue)s, %(priority)s, %(payload)s, %(max_attempts)s, %(now)s, %(next_at)s)
on conflict (name) do update
   set cron = excluded.cron, tz = excluded.tz, job_type = excluded.job_type, queue = excluded.queue,
       priority = excluded.priority, payload = excluded.payload, max_attempts = excluded.max_attempts,
       next_at = case when s.cron = excluded.cron and s.tz = excluded.tz then s.next_at else excluded.next_at end
returning *;

-- name: schedule.all
select * from penstock.schedules where %(name)s::text is null or name = %(name)s order by name;

-- name: schedule.due
-- Schedules whose next run is due; those that another one looks at just now are left to it.
select * from penstock.schedules where not suspended and next_at <= %(now)s order by name for update skip locked;

-- name: schedule.one
select * from penstock.schedules where name = %(name)s for update;

-- name: schedule.ran
update penstock.schedules set next_at = %(next_at)s, last_at = %(last_at)s, last_job = %(last_job)s where name = %(name)s;

-- name: schedule.suspend
update penstock.schedules set suspended = %(suspended)s, next_at = %(next_at)s where name = %(name)s;

-- name: schedule.delete
delete from penstock.schedules where name = %(name)s;
