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
