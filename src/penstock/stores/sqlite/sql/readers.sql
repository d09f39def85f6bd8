-- name: reader.known
select 1 as known from penstock_reader_claims where reader = :reader and group_id = :group_id limit 1;

-- name: reader.open
-- Open leases of one reader, or of all.
select id, claimed_by, claimed_at, expires_at, members from penstock_leases
 where group_id = :group_id and outcome is null and claimed_by like 'reader:%'
   and (:claimed_by is null or claimed_by = :claimed_by)
 order by id;
