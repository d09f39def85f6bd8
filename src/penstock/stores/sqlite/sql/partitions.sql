-- name: source.counted
-- Events of a stream up to every step of the tally within a range.
select upto, sum(events) as events from penstock_tally_step
 where stream = :stream and upto >= :low and upto <= :high group by upto order by upto;

-- name: source.count
-- The same for what is not counted yet, in blocks of its own: the index alone answers.
select ("offset" - 1) / :size as block, count(*) as events from penstock_events
 where {{in_range()}} group by 1 order by 1;

-- name: source.nth
-- The event so many places behind an offset.
select "offset" from penstock_events indexed by penstock_events_stream
 where {{in_range()}} order by "offset" limit 1 offset :skip;

-- name: source.sample
-- How large the first payloads of a range are.
select cast(avg(s.bytes) as integer) as bytes
  from (select length(payload) as bytes from penstock_events indexed by penstock_events_stream where {{in_range()}} order by "offset" limit :most) s;

-- name: source.between
-- Where the events of a time begin and end.
select min("offset") as first, max("offset") as last from penstock_events indexed by penstock_events_created
 where stream = :stream and created_at >= :since and (:until is null or created_at < :until);
