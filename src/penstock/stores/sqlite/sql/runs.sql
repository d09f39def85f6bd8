-- name: run.start
insert into penstock_runs (name, app, engine, version, host, pid, "groups", started_at, heartbeat_at)
values (:name, :app, :engine, :version, :host, :pid, :groups, :now, :now)
returning id;

-- name: run.beat
update penstock_runs set heartbeat_at = :now where id = :run and ended_at is null returning wanted;

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
