-- name: run.start
insert into penstock.runs (name, app, engine, version, host, pid, groups, started_at, heartbeat_at)
values (%(name)s, %(app)s, %(engine)s, %(version)s, %(host)s, %(pid)s,
        array(select jsonb_array_elements_text(%(groups)s::jsonb)), %(now)s, %(now)s)
returning id;

-- name: run.beat
update penstock.runs set heartbeat_at = %(now)s where id = %(run)s and ended_at is null returning wanted;

-- name: run.end
update penstock.runs set heartbeat_at = %(now)s, ended_at = %(now)s, outcome = %(outcome)s
 where id = %(run)s and ended_at is null;

-- name: run.want
update penstock.runs set wanted = %(wanted)s where id = %(run)s and ended_at is null;

-- name: run.find
select {{run_columns}}
  from penstock.runs where id = %(run)s for update;

-- name: run.list
select {{run_columns}}
  from penstock.runs where ended_at is null or %(everything)s order by id desc limit 1000;
