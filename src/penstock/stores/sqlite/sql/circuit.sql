-- name: circuit.probe
update penstock_circuits set probe = :lease where group_id = :group_id;

-- name: circuit.open
-- One that somebody else has just opened stays as it is, unless this is its probe.
insert into penstock_circuits as c (group_id, opened_at, delay_seconds, probe_at, last_error, error_code)
values (:group_id, :now, :delay_seconds, :probe_at, :last_error, :error_code)
on conflict (group_id) do update
   set delay_seconds = excluded.delay_seconds, probe_at = excluded.probe_at, last_error = excluded.last_error,
       error_code = excluded.error_code
 where c.probe = :lease;

-- name: circuit.close
delete from penstock_circuits where group_id = :group_id and probe = :lease;

-- name: circuit.opened
select g.stream, g.group_name, c.opened_at, c.last_error, c.error_code
  from penstock_circuits c join penstock_groups g using (group_id) order by c.opened_at, c.group_id;
