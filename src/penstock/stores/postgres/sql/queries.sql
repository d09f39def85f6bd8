-- name: query.leftovers
-- What attempts of this micro-batch have staged, and what queries that never came back did: it has no lease, so its
-- number is negative.
select attempt from penstock.staging_attempts
 where writer = 'pipeline' and batch < 0
   and (batch = %(batch)s or started_at < %(now)s::timestamptz - make_interval(secs => %(kept_seconds)s))
   for update skip locked;

-- name: query.readers
-- Who has ever read this group as a stream, and the last claim of each.
select c.reader, max(c.claim) as claim, max(c.lease) as lease from penstock.reader_claims c
 where c.group_id = %(group_id)s group by c.reader order by max(c.lease) desc limit 10;
