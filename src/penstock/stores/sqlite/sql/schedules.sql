-- name: schedule.put
-- A schedule that says what it said keeps its next run.
insert into penstock_schedules as s (name, cron, tz, job_type, queue, priority, payload, max_attempts, created_at, next_at)
values (:name, :cron, :tz, :job_type, :queue, :priority, :payload, :max_attempts, :now, :next_at)
on conflict (name) do update
   set cron = excluded.cron, tz = excluded.tz, job_type = excluded.job_type, queue = excluded.queue,
       priority = excluded.priority, payload = excluded.payload, max_attempts = excluded.max_attempts,
       next_at = case when s.cron = excluded.cron and s.tz = excluded.tz then s.next_at else excluded.next_at end
returning *;

-- name: schedule.all
select * from penstock_schedules where :name is null or name = :name order by name;

-- name: schedule.due
-- Schedules whose next run is due; those that another one looks at just now are left to it.
select * from penstock_schedules where not suspended and next_at <= :now order by name;

-- name: schedule.one
select * from penstock_schedules where name = :name;

-- name: schedule.ran
update penstock_schedules set next_at = :next_at, last_at = :last_at, last_job = :last_job where name = :name;

-- name: schedule.suspend
update penstock_schedules set suspended = :suspended, next_at = :next_at where name = :name;

-- name: schedule.delete
delete from penstock_schedules where name = :name;
