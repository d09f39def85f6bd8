-- name: source.counted
-- Events of a stream up to every step of the tally within a range.
select upto, sum(events)::bigint as events from penstock.tally_step
 where stream = %(stream)s and upto >= %(low)s and upto <= %(high)s group by upto order by upto;

-- name: source.count
-- The same for what is not counted yet, in blocks of its own: the index alone answers.
select ("offset" - 1) / %(size)s as block, count(*) as events from penstock.events
 where {{in_range()}} group by 1 order by 1;

-- name: source.nth
-- The event so many places behind an offset.
select "offset" from penstock.events
 where {{in_range()}} order by "offset" offset %(skip)s limit 1;

-- name: source.sample
-- How large the first payloads of a range are.
select avg(s.bytes)::bigint as bytes
  from (select octet_length(payload) as bytes from penstock.events where {{in_range()}} order by "offset" limit %(most)s) s;

-- name: source.between
-- Where the events of a time begin and end; BRIN finds the pages.
with meant as materialized (
  select "offset" from penstock.events
   where stream = %(stream)s and created_at >= %(since)s::timestamptz
     and (%(until)s::timestamptz is null or created_at < %(until)s::timestamptz)
)
select min("offset") as first, max("offset") as last from meant;
