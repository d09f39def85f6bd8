-- name: reader.record
-- In the transaction of the claim, so that no lease of a reader is without its number.
insert into penstock.reader_claims (reader, claim, lease, group_id)
values (%(reader)s, %(claim)s, %(lease)s, %(group_id)s);

-- name: reader.last
select max(claim) as claim from penstock.reader_claims where reader = %(reader)s;

-- name: reader.group
-- Whose claim this is.
select group_id from penstock.reader_claims where reader = %(reader)s and claim = %(claim)s limit 1;

-- name: reader.next
-- The lowest claim above a number.
select min(claim) as claim from penstock.reader_claims where reader = %(reader)s and claim > %(after)s;

-- name: reader.leases
-- What was claimed together.
select l.*, g.stream, g.group_name
  from penstock.reader_claims c
  join penstock.leases l on l.id = c.lease
  join penstock.groups g on g.group_id = l.group_id
 where c.reader = %(reader)s and c.claim = %(claim)s
 order by l.id;

-- name: reader.unsettled
-- A reader settles in order: nothing is open below a claim that is settled.
select c.claim, l.id, l.token, l.high, l.outcome, c.failures::text as failures
  from penstock.reader_claims c join penstock.leases l on l.id = c.lease
 where c.reader = %(reader)s and c.claim <= %(upto)s
   and c.claim > coalesce((select s.claim from penstock.reader_claims s join penstock.leases d on d.id = s.lease
                            where s.reader = %(reader)s and s.claim <= %(upto)s and d.outcome = 'settled'
                            order by s.claim desc limit 1), 0)
 order by c.claim, l.id;

-- name: reader.held
select id, token, outcome, expires_at from penstock.leases where id = any(%(ids)s::bigint[]);

-- name: reader.there
-- How many of these offsets still have their row.
select count(*)::int as members from penstock.deliveries
 where {{these_rows}};

-- name: reader.fail
-- What is to be settled with a lease, beside its success; what was said before is replaced.
update penstock.reader_claims set failures = %(failures)s::jsonb
 where reader = %(reader)s and claim = %(claim)s and lease = %(lease)s;
