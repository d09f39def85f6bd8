-- name: tally.last
select coalesce(max(upto), 0) as upto from penstock.tally_mark;

-- name: tally.turn
-- The last mark, for whoever comes first; nobody waits for it. (A row and no advisory lock: strangers cannot hold it.)
select upto from penstock.tally_mark where upto = (select max(upto) from penstock.tally_mark) for update skip locked;

-- name: tally.mark
-- Whoever inserts the mark counts its block.
insert into penstock.tally_mark (upto) values (%(upto)s) on conflict do nothing;

-- name: tally.add
insert into penstock.tally_now as n (stream, event_type, events)
select stream, event_type, count(*) from penstock.events
 where "offset" > %(before)s and "offset" <= %(upto)s group by stream, event_type order by stream, event_type
on conflict (stream, event_type) do update set events = n.events + excluded.events
returning stream;

-- name: tally.keep
-- The counts at this mark of streams that have grown enough since their last step (and enough for their many types).
insert into penstock.tally_step (stream, upto, event_type, events)
select n.stream, %(upto)s, n.event_type, n.events
  from unnest(%(streams)s::text[]) as s(stream)
 cross join lateral (select sum(events) as events, count(*) as types from penstock.tally_now where stream = s.stream) t
 cross join lateral (select coalesce(sum(k.events), 0) as events from penstock.tally_step k
                      where k.stream = s.stream
                        and k.upto = (select max(upto) from penstock.tally_step where stream = s.stream)) k
  join penstock.tally_now n on n.stream = s.stream
 where t.events - k.events >= greatest(%(growth)s, 20 * t.types)
on conflict do nothing;
