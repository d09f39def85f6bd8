-- name: group.lock
-- Claimers and operators of a group come one at a time; the lock ends with the transaction. (Not a row of `groups`: a
-- settle may write that while it holds a lease, and leases come after the group.)
select l.group_id from penstock.groups g join penstock.group_locks l on l.group_id = g.group_id
 where g.stream = %(stream)s and g.group_name = %(group_name)s for update of l;

-- name: group.find
-- The groups of a stream (or of the log), or one of them, or that of a lease; each with its bindings in order.
select g.*, (select coalesce(json_agg(json_build_object(
                      'id', b.id, 'from_offset', b.from_offset, 'types', b.types, 'type_regex', b.type_regex,
                      'headers', b.headers::text) order by b.from_offset, b.id), '[]')::text
               from penstock.bindings b where b.group_id = g.group_id) as bindings,
       c.opened_at as circuit_opened_at, c.delay_seconds, c.probe_at, c.last_error, c.error_code, c.probe,
       (select l.expires_at from penstock.leases l where l.id = c.probe and l.outcome is null) as probe_expires_at
  from penstock.groups g left join penstock.circuits c on c.group_id = g.group_id
 where {{of_group(g.)}}
   and (%(lease)s::bigint is null or g.group_id = (select group_id from penstock.leases where id = %(lease)s))
 order by g.stream, g.group_name;

-- name: group.create
insert into penstock.groups (stream, group_name, ordering, keyed, lanes, starts, floor, on_dead, lease_seconds, max_attempts,
                             base_seconds, factor, cap_seconds, jitter, max_age_seconds, created_at)
values (%(stream)s, %(group_name)s, %(ordering)s, %(keyed)s, %(lanes)s, %(starts)s::bigint[], %(floor)s, %(on_dead)s,
        %(lease_seconds)s, %(max_attempts)s, %(base_seconds)s, %(factor)s, %(cap_seconds)s, %(jitter)s,
        %(max_age_seconds)s, %(now)s)
on conflict (stream, group_name) do nothing
returning group_id;

-- name: group.bind
insert into penstock.bindings (group_id, from_offset, types, type_regex, headers, created_at)
values (%(group_id)s, %(from_offset)s, %(types)s::text[], %(type_regex)s, %(headers)s::jsonb, %(now)s)
returning id;

-- name: group.bind_glob
-- Only SQLite needs globs: here the regular expression does it.
select 1;

-- name: group.pause
update penstock.groups set paused = %(paused)s, pause_reason = %(reason)s where group_id = %(group_id)s;

-- name: group.policy
update penstock.groups
   set lease_seconds = %(lease_seconds)s, max_attempts = %(max_attempts)s, base_seconds = %(base_seconds)s,
       factor = %(factor)s, cap_seconds = %(cap_seconds)s, jitter = %(jitter)s, max_age_seconds = %(max_age_seconds)s, on_dead = %(on_dead)s
 where group_id = %(group_id)s;

-- name: group.lanes
update penstock.groups
   set lanes = %(lanes)s, starts = %(starts)s::bigint[], matched_before = %(matched_before)s
 where group_id = %(group_id)s;

-- name: group.rewound
update penstock.groups
   set rewinds = %(rewinds)s, rewound_upto = %(rewound_upto)s, floor = least(floor, %(target)s), matched_before = matched_before + %(older)s
 where group_id = %(group_id)s;

-- name: group.delete
select penstock.remove_group(%(group_id)s);

-- name: group.open_lease
select id from penstock.open_lease where group_id = %(group_id)s limit 1;

-- name: group.created_after
select "offset", created_at from penstock.events
 where stream = %(stream)s and "offset" > %(after)s order by "offset" limit 1;

-- name: group.offset_at
-- The first event of a short stretch created at a time or later.
select min("offset") as "offset" from (
  select "offset" from penstock.events
   where {{in_range()}} and created_at >= %(at)s offset 0) later;

-- name: audit.add
insert into penstock.audit (at, by, action, stream, group_name, count, detail)
values (%(now)s, %(by)s, %(action)s, %(stream)s, %(group_name)s, %(count)s, %(detail)s::jsonb);
