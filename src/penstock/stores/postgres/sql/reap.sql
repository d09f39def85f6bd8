-- name: reap.groups
-- The groups, of all or of those that are named, that have an expired lease. (`offset 0`: only their leases are looked at.)
select g.stream, g.group_name from penstock.groups g
 where (%(streams)s::text[] is null
        or (g.stream, g.group_name) in (select * from unnest(%(streams)s::text[], %(names)s::text[])))
   and exists (select 1 from penstock.open_lease o where o.group_id = g.group_id and o.expires_at <= %(now)s offset 0)
 order by g.stream, g.group_name;

-- name: reap.expired
select id from penstock.open_lease where group_id = %(group_id)s and expires_at <= %(now)s order by id;

-- name: reap.lock
-- A lease whose holder is in the middle of its settle is left alone.
{{lease_records}}
 where l.id = any(%(ids)s::bigint[]) and l.outcome is null and l.expires_at <= %(now)s
 order by l.id for update of l skip locked;
