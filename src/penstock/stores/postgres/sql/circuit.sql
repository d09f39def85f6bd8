-- name: circuit.probe
update penstock.circuits set probe = %(lease)s where group_id = %(group_id)s;

-- name: circuit.open
-- One that somebody else has just opened stays as it is, unless this is its probe.
insert into penstock.circuits as c (group_id, opened_at, delay_seconds, probe_at, last_error, error_code)
values (%(group_id)s, %(now)s, %(delay_seconds)s, %(probe_at)s, %(last_error)s, %(error_code)s)
on conflict (group_id) do update
   set delay_seconds = excluded.delay_seconds, probe_at = excluded.probe_at, last_error = excluded.last_error,
       error_code = excluded.error_code
 where c.probe = %(lease)s;

-- name: circuit.close
delete from penstock.circuits where group_id = %(group_id)s and probe = %(lease)s;

-- name: circuit.opened
select g.stream, g.group_name, c.opened_at, c.last_error, c.error_code
  from penstock.circuits c join penstock.groups g using (group_id) order by c.opened_at, c.group_id;
