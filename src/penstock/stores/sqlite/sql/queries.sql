-- name: query.leftovers
-- What attempts of this micro-batch have staged, and what queries that never came back did: it has no lease, so its
-- number is negative.
select attempt from penstock_staging_attempts
 where writer = 'pipeline' and batch < 0
   and (batch = :batch or started_at < :now - cast(:kept_seconds * 1000000 as integer));

-- name: query.readers
-- Who has ever read this group as a stream, and the last claim of each.
select c.reader, max(c.claim) as claim, max(c.lease) as lease from penstock_reader_claims c
 where c.group_id = :group_id group by c.reader order by max(c.lease) desc limit 10;
