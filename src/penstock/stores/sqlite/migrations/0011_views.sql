-- Counting and looking at a cost that follows what is asked for.

-- The tally. `tally_mark`: how far the log is counted. `tally_now`: events per stream and type up to that mark.
-- `tally_step`: the same at earlier marks, kept for a stream only once it has grown enough, so that ten thousand streams
-- do not repeat themselves at every mark. All of them count events that are there: prune takes along what it removes.
create table if not exists penstock_tally_mark (
  upto integer primary key
);
create table if not exists penstock_tally_now (
  stream     text not null,
  event_type text not null,
  events     integer not null,
  primary key (stream, event_type)
) without rowid;
create table if not exists penstock_tally_step (
  stream     text not null,
  upto       integer not null,
  event_type text not null,
  events     integer not null,
  primary key (stream, upto, event_type)
) without rowid;
insert or ignore into penstock_tally_mark (upto)
select coalesce(max(upto), 0) from penstock_tally;
insert or ignore into penstock_tally_now (stream, event_type, events)
select stream, event_type, events from penstock_tally
 where upto = (select max(upto) from penstock_tally) and stream <> '';
-- Of the snapshots of earlier versions, which had every stream at every mark, one in about 10,000 events of a stream.
insert or ignore into penstock_tally_step (stream, upto, event_type, events)
select t.stream, t.upto, t.event_type, t.events
  from (select stream, upto, step, lag(step, 1, 0) over (partition by stream order by upto) as before
          from (select stream, upto, sum(events) / 10000 as step from penstock_tally
                 where stream <> '' group by stream, upto)) s
 cross join penstock_tally t on t.upto = s.upto and t.stream = s.stream
 where s.step > s.before;
-- A worker of an earlier version that is still running counts anew, for itself.
delete from penstock_tally;
