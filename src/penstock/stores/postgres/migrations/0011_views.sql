-- Counting and looking at a cost that follows what is asked for.

-- The tally. `tally_mark`: how far the log is counted; there is always one, and whoever counts locks it. `tally_now`:
-- events per stream and type up to that mark. `tally_step`: the same at earlier marks, kept for a stream only once it has
-- grown enough, so that ten thousand streams do not repeat themselves at every mark. All of them count events that are
-- there: prune takes along what it removes.
create table if not exists penstock.tally_mark (
  upto bigint primary key
);
create table if not exists penstock.tally_now (
  stream     text not null,
  event_type text not null,
  events     bigint not null,
  primary key (stream, event_type)
) with (fillfactor = 70);
create table if not exists penstock.tally_step (
  stream     text not null,
  upto       bigint not null,
  event_type text not null,
  events     bigint not null,
  primary key (stream, upto, event_type)
);
insert into penstock.tally_mark (upto) select coalesce(max(upto), 0) from penstock.tally on conflict do nothing;
insert into penstock.tally_now (stream, event_type, events)
select stream, event_type, events from penstock.tally
 where upto = (select max(upto) from penstock.tally) and stream <> '' on conflict do nothing;
-- Of the snapshots of earlier versions, which had every stream at every mark, one in about 10,000 events of a stream.
insert into penstock.tally_step (stream, upto, event_type, events)
select t.stream, t.upto, t.event_type, t.events from penstock.tally t
  join (select stream, upto, step, lag(step, 1, 0::bigint) over (partition by stream order by upto) as before
          from (select stream, upto, sum(events)::bigint / 10000 as step from penstock.tally
                 where stream <> '' group by stream, upto) totals) s
    on s.stream = t.stream and s.upto = t.upto
 where s.step > s.before on conflict do nothing;
-- A worker of an earlier version that is still running counts anew, for itself.
truncate penstock.tally;

-- The newest lease of a lane names those that were open before it. (`offset 0` keeps the plan from mixing the steps; the
-- group is the one that was asked for, so that asking for one does not look at all.)
create or replace view penstock.open_lease as
select o.id, g.group_id, o.lane, o.lanes, o.binding, o.token, o.claimed_by, o.claimed_at, o.expires_at, o.attempts,
       o.replay, o.members, o.low, o.high, o.holes, o.offsets, o.fresh, o.total, o.open_before, o.outcome, o.upto, o.digest,
       o.answer, o.ended_at
  from penstock.groups g
 cross join lateral unnest(g.starts) with ordinality as l(start, number)
 cross join lateral (select id, open_before from penstock.leases
                      where group_id = g.group_id and lanes = g.lanes and lane = l.number - 1
                      order by id desc limit 1) n
 cross join lateral (select * from penstock.leases where id = any(n.open_before || n.id) offset 0) o
 where o.outcome is null;
