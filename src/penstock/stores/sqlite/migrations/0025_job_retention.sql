-- Retention: finished jobs leave after a time, and dead ones after another; what is counted of them stays.

-- How many seconds jobs of a type stay after they have finished, or died; null is for ever.
alter table penstock_job_types add column keep_finished real check (keep_finished >= 0);
alter table penstock_job_types add column keep_dead real check (keep_dead > 0);

-- How far finished jobs of a group have been removed: up to here only those are left that have a row. `rewinds` and
-- `newest` are those of the group, and its newest lease, at that time.
create table if not exists penstock_job_retention (
  group_id integer primary key,
  swept    integer not null default 0,
  newest   integer,
  rewinds  integer not null default 0
);

-- Finished and dead jobs that were removed, so that totals do not fall.
create table if not exists penstock_job_totals (
  group_id  integer primary key,
  completed integer not null default 0,
  exhausted integer not null default 0
);

-- Rows of jobs by the time at which they ended; unique keys by their job.
create index if not exists penstock_deliveries_job_done on penstock_deliveries (group_id, published_at)
 where state = 'PUBLISHED' and stream >= 'jobs:' and stream < 'jobs;';
create index if not exists penstock_deliveries_job_dead on penstock_deliveries (group_id, dead_at)
 where state = 'DEAD' and stream >= 'jobs:' and stream < 'jobs;';
create index if not exists penstock_job_unique_event on penstock_job_unique (event_id);
