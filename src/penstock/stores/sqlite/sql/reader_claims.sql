-- name: reader.record
-- In the transaction of the claim, so that no lease of a reader is without its number.
insert into penstock_reader_claims (reader, claim, lease, group_id) values (:reader, :claim, :lease, :group_id);

-- name: reader.last
select max(claim) as claim from penstock_reader_claims where reader = :reader;

-- name: reader.group
-- Whose claim this is.
select group_id from penstock_reader_claims where reader = :reader and claim = :claim limit 1;

-- name: reader.next
-- The lowest claim above a number.
select min(claim) as claim from penstock_reader_claims where reader = :reader and claim > :after;

-- name: reader.leases
-- What was claimed together.
select l.*, g.stream, g.group_name
  from penstock_reader_claims c
 cross join penstock_leases l on l.id = c.lease
 cross join penstock_groups g on g.group_id = l.group_id
 where c.reader = :reader and c.claim = :claim
 order by l.id;

-- name: reader.unsettled
-- A reader settles in order: nothing is open below a claim that is settled.
select c.claim, l.id, l.token, l.high, l.outcome, c.failures
  from penstock_reader_claims c cross join penstock_leases l on l.id = c.lease
 where c.reader = :reader and c.claim <= :upto
   and c.claim > coalesce((select s.claim from penstock_reader_claims s cross join penstock_leases d on d.id = s.lease
                            where s.reader = :reader and s.claim <= :upto and d.outcome = 'settled'
                            order by s.claim desc limit 1), 0)
 order by c.claim, l.id;

-- name: reader.held
select id, token, outcome, expires_at from penstock_leases where id in (select value from json_each(:ids));

-- name: reader.there
-- How many of these offsets still have their row.
select count(*) as members from penstock_deliveries
 where {{these_rows}};

-- name: reader.fail
-- What is to be settled with a lease, beside its success; what was said before is replaced.
update penstock_reader_claims set failures = :failures where reader = :reader and claim = :claim and lease = :lease;
