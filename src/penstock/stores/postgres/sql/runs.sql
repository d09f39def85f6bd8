-- name: run.start
insert into penstock.runs (name, app, engine, version, host, pid, groups, started_at, heartbeat_at)
values (%(name)s, %(app)s, %(engine)s, %(version)s, %(host)s, %(pid)s,
        array(select jsonb_array_elements_text(%(groups)s::jsonb)), %(now)s, %(now)s)
returning id;

-- name: run.beat
-- `token`: only a run over HTTP that this token has begun.
update penstock.runs set heartbeat_at = %(now)s
 where id = %(run)s and ended_at is null and (%(token)s::text is null or (engine = 'http' and app = %(token)s::text))
returning wanted;

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

-- name: run.wanted
select wanted from penstock.runs where id = %(run)s;

-- name: run.newest_lease
select coalesce(max(id), 0) as id from penstock.leases;

-- name: run.leases
-- Leases of a run: those that are new, and those that were open at the last look.
select l.id, g.stream, g.group_name, l.outcome is not null as ended, l.members, l.published, l.failed, l.dead, l.released
  from penstock.leases l join penstock.groups g on g.group_id = l.group_id
 where (l.id > %(after)s or l.id = any(%(open)s::bigint[])) and l.run = %(run)s
 order by l.id;
