-- name: vitals.blocked
-- Deliveries that wait for an earlier one of their key, per group, and how many lanes stand still because of them.
select stream, group_name, sum(waiting) as waiting, sum(waiting >= :most) as lanes
  from (select g.stream, g.group_name, d.bucket * g.lanes / 256 as lane, count(*) as waiting
          from penstock_deliveries d join penstock_groups g on g.group_id = d.group_id
         where d.state = 'PENDING' and d.reason = 'blocked'
         group by 1, 2, 3) b
 group by 1, 2;

-- name: vitals.runs
-- Runs that have not ended, by engine, and how many of them have sent no heartbeat for a while.
select engine, sum(heartbeat_at >= :since) as running, sum(heartbeat_at < :since) as lost
  from penstock_runs where ended_at is null group by engine;

-- name: vitals.schema
-- The newest migration that ran.
select max(version) as version from penstock_schema_version;

-- name: vitals.expired
-- Leases whose time is over and that nobody has taken back yet, counted up to a limit.
select count(*) as leases
  from (select 1 from penstock_leases where outcome is null and expires_at < :now limit :most) expired;
