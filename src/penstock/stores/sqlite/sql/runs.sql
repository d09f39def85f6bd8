-- name: run.start
insert into penstock_runs (name, app, engine, version, host, pid, "groups", started_at, heartbeat_at)
values (:name, :app, :engine, :version, :host, :pid, :groups, :now, :now)
returning id;

-- name: run.beat
-- `token`: only a run over HTTP that this token has begun.
update penstock_runs set heartbeat_at = :now
 where id = :run and ended_at is null and (:token is null or (engine = 'http' and app = :token))
returning wanted;

-- name: run.end
update penstock_runs set heartbeat_at = :now, ended_at = :now, outcome = :outcome where id = :run and ended_at is null;

-- name: run.want
update penstock_runs set wanted = :wanted where id = :run and ended_at is null;

-- name: run.find
select {{run_columns}}
  from penstock_runs where id = :run;

-- name: run.list
select {{run_columns}}
  from penstock_runs where ended_at is null or :everything order by id desc limit 1000;

-- name: run.wanted
select wanted from penstock_runs where id = :run;

-- name: run.newest_lease
select coalesce(max(id), 0) as id from penstock_leases;

-- name: run.leases
-- Leases of a run: those that are new, and those that were open at the last look.
select l.id, g.stream, g.group_name, l.outcome is not null as ended, l.members, l.published, l.failed, l.dead, l.released
  from penstock_leases l join penstock_groups g on g.group_id = l.group_id
 where (l.id > :after or l.id in (select value from json_each(:open))) and l.run = :run
 order by l.id;
