-- name: tally.last
select coalesce(max(upto), 0) as upto from penstock_tally_mark;

-- name: tally.turn
-- BEGIN IMMEDIATE made this the only transaction that writes.
select max(upto) as upto from penstock_tally_mark;

-- name: tally.mark
-- Whoever inserts the mark counts its block.
insert into penstock_tally_mark (upto) values (:upto) on conflict do nothing;

-- name: tally.add
insert into penstock_tally_now (stream, event_type, events)
select stream, event_type, count(*) from penstock_events not indexed
 where "offset" > :before and "offset" <= :upto group by stream, event_type
on conflict (stream, event_type) do update set events = events + excluded.events
returning stream;

-- name: tally.keep
-- The counts at this mark of streams that have grown enough since their last step (and enough for their many types).
insert into penstock_tally_step (stream, upto, event_type, events)
select n.stream, :upto, n.event_type, n.events
  from json_each(:streams) s cross join penstock_tally_now n on n.stream = s.value
 where (select sum(t.events) from penstock_tally_now t where t.stream = s.value)
       - (select coalesce(sum(k.events), 0) from penstock_tally_step k
           where k.stream = s.value
             and k.upto = (select max(m.upto) from penstock_tally_step m where m.stream = s.value))
       >= max(:growth, 20 * (select count(*) from penstock_tally_now t where t.stream = s.value))
on conflict do nothing;
