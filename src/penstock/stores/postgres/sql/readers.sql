-- name: reader.known
select 1 as known from penstock.reader_claims where reader = %(reader)s and group_id = %(group_id)s limit 1;

-- name: reader.open
-- Open leases of one reader, or of all.
select o.id, o.claimed_by, o.claimed_at, o.expires_at, o.members from penstock.open_lease o
 where o.group_id = %(group_id)s and o.claimed_by like 'reader:%%'
   and (%(claimed_by)s::text is null or o.claimed_by = %(claimed_by)s::text)
 order by o.id;
