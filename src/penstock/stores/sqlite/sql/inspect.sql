-- name: inspect.deliveries
-- The comment in the WHERE becomes a list of offsets where events are named.
with page as materialized (
  select * from penstock_delivery v
   where v.group_id = :group_id and v."offset" > :after and v."offset" <= :upto
     and (:state is null or v.state = :state)
     /* these */
     and {{of_type(v.)}}
     and {{of_error(v.)}}
     and ((:since is null and :until is null) or exists (
           select 1 from penstock_events e where e."offset" = v."offset"
              and {{created_between(e.)}}))
   order by v."offset" limit :limit
)
select v.stream, v.group_name, v."offset", v.event_id, v.event_type, v.state, v.attempts, v.failures, v.available_at,
       v.claimed_at, v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at, v.updated_at,
       v.total_attempts, v.error_type, v.fingerprint, e.payload, e.content_type, e.headers, e.metadata, e.partition_key, e.ordering_key, e.created_at
  from page v cross join penstock_events e on e."offset" = v."offset"
 order by v."offset";

-- name: inspect.next
-- The lowest offset above `after` at which a delivery of a state may be: a row; for what waits, beyond a cursor or in a
-- range that came back; for what is in work, in an open lease.
select min("offset") as "offset" from (
  select min("offset") as "offset" from penstock_deliveries
   where group_id = :group_id and "offset" > :after and state = :state
  union all
  select min(max(cursor, :after)) + 1 from penstock_lane where group_id = :group_id and :state = 'PENDING'
  union all
  select min(max(low, :after)) + 1 from penstock_returned
   where group_id = :group_id and high > :after and :state = 'PENDING'
  union all
  select min(max(low, :after)) + 1 from penstock_leases
   where group_id = :group_id and outcome is null and high > :after and :state = 'CLAIMED');

-- name: inspect.type_from
-- Up to where a stream has no event of a type above an offset, as far as the tally knows it by its steps.
select coalesce(max(s.upto), 0) as upto from (select distinct upto from penstock_tally_step where stream = :stream) s
 where s.upto > :after
   and coalesce((select t.events from penstock_tally_step t
                  where t.stream = :stream and t.upto = s.upto and t.event_type = :event_type), 0)
     = coalesce((select t.events from penstock_tally_step t
                  where t.stream = :stream and t.event_type = :event_type
                    and t.upto = (select max(b.upto) from penstock_tally_step b
                                   where b.stream = :stream and b.upto <= :after)), 0);

-- name: inspect.last_offset
select max("offset") as "offset" from penstock_events;

-- name: inspect.history
select h.attempt, h.failures, h.replays, h.outcome, h.error, h.error_code, h.claimed_by, h.claimed_at, h.ended_at, h.lease,
       h.at as happened_at, h."by", h.error_type, h.fingerprint, f.traceback
  from penstock_history h left join penstock_fingerprints f on f.fingerprint = h.fingerprint
 where h.group_id = :group_id and h."offset" = :offset
 order by h.at, h.lease nulls last, h.step, h.line;

-- name: inspect.event
select "offset", event_id, event_type, {{bucket()}} as bucket from penstock_events
 where "offset" = coalesce(:offset, (select "offset" from penstock_events where event_id = :event_id))
   and stream = :stream;

-- name: inspect.streams
-- One look into the index per stream, however long the log is.
with recursive streams(stream) as (
  select min(stream) from penstock_events
  union all
  select (select min(e.stream) from penstock_events e where e.stream > s.stream) from streams s where s.stream is not null
)
select s.stream, (select max("offset") from penstock_events e where e.stream = s.stream) as last_offset
  from streams s where s.stream is not null;

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

-- name: stats.now
-- Events per stream and type up to an offset behind the last mark: the counts at the mark, and a short tail.
select stream, event_type, sum(events) as events from (
  select stream, event_type, events from penstock_tally_now where :stream is null
  union all
  select stream, event_type, events from penstock_tally_now where stream = :stream
  union all
  select stream, event_type, count(*) from penstock_events not indexed
   where :stream is null and "offset" > (select coalesce(max(upto), 0) from penstock_tally_mark) and "offset" <= :upto
   group by stream, event_type
  union all
  select stream, event_type, count(*) from penstock_events indexed by penstock_events_stream
   where stream = :stream and "offset" > (select coalesce(max(upto), 0) from penstock_tally_mark) and "offset" <= :upto
   group by stream, event_type) counted
 group by stream, event_type;

-- name: stats.at
-- Events per type of streams up to offsets. Each is counted from the step below it, or, where that is nearer
-- (`relative`), from the offset asked for before it.
with asked as materialized (
  select s.value as stream, o.value as "offset",
         coalesce(lag(o.value) over (partition by s.value order by o.value), 0) as before
    from json_each(:streams) s cross join json_each(:offsets) o on o.key = s.key
), placed as materialized (
  select a.stream, a."offset", a.before, coalesce((select max(s.upto) from penstock_tally_step s
                         where s.stream = a.stream and s.upto <= a."offset"), 0) as base from asked a
)
select stream, "offset", relative, event_type, sum(events) as events from (
  select p.stream, p."offset", p.before > p.base as relative, null as event_type, 0 as events from placed p
  union all
  select p.stream, p."offset", p.before > p.base, s.event_type, s.events
    from placed p cross join penstock_tally_step s on s.stream = p.stream and s.upto = p.base
   where p.before <= p.base
  union all
  select p.stream, p."offset", p.before > p.base, e.event_type, 1
    from placed p cross join penstock_events e indexed by penstock_events_stream
      on e.stream = p.stream and e."offset" > max(p.before, p.base) and e."offset" <= p."offset") counted
 group by stream, "offset", relative, event_type order by stream, "offset";

-- name: stats.lanes
-- Every lane of groups: how far it has got, and how many events it has passed.
select g.group_id, s.key as lane,
       coalesce((select c.high from penstock_leases c
                  {{cursor_lease(g., s.key)}}), s.value) as cursor,
       (select c.total from penstock_leases c
         {{cursor_lease(g., s.key)}}) as total
  from penstock_groups g cross join json_each(g.starts) s
 where {{of_group(g.)}}
 order by g.group_id, lane;

-- name: stats.rows
-- Exception rows by state, split at the cursor of their lane; the first of each kind.
with lanes as materialized (
  select group_id, lane, lanes, cursor from penstock_lane
   where {{of_group()}}
)
select d.group_id, d.state, d."offset" > l.cursor as ahead, count(*) as rows, min(d."offset") as first
  from (select distinct group_id from lanes) g
 cross join penstock_deliveries d on d.group_id = g.group_id
  join lanes l on l.group_id = d.group_id and l.lane = d.bucket * l.lanes / 256
 group by 1, 2, 3;

-- name: stats.groups
-- What waits as ranges, what is in work, and the rate, from the newest leases of every lane: over a minute, or over the
-- time that as many leases as are looked at reach back.
select g.group_id,
       (select coalesce(sum(r.members), 0) from penstock_returned r where r.group_id = g.group_id) as returned,
       (select coalesce(sum(l.members), 0) from penstock_leases l
         where l.group_id = g.group_id and l.outcome is null and l.offsets is null) as open,
       (select count(*) from penstock_leases l where l.group_id = g.group_id and l.outcome is null) as leases,
       (select coalesce(sum(rate), 0) from (
          select sum(json_extract(l.answer, '$[0]')) * 1.0
                 / case when count(*) = :looked then max(1, (:now - min(l.ended_at)) / 1000000.0) else 60 end as rate
            from json_each(g.starts) s
           cross join penstock_leases l on l.id in (
                   select x.id from penstock_leases x
                    where x.group_id = g.group_id and x.lanes = g.lanes and x.lane = s.key
                    order by x.id desc limit :looked)
           where l.ended_at > :now - 60000000 group by s.key)) as rate
  from penstock_groups g
 where {{of_group(g.)}};

-- name: stats.created
select "offset", created_at from penstock_events where "offset" in (select value from json_each(:offsets));

-- name: stats.oldest_held
-- The oldest event of groups in a returned range or in an open lease: of each lane's lowest, and of each lease.
select group_id, min(created_at) as created_at from (
  select r.group_id, (
         select e.created_at from penstock_events e indexed by penstock_events_stream
          where e.stream = g.stream and e."offset" > r.low and e."offset" <= r.high
            and {{in_lane(e., r.)}}
            and {{bound(b.id, e.)}}
            and not {{has_row(r.group_id, e.)}}
          order by e."offset" limit 1) as created_at
    from (select group_id, lanes, lane, binding, high, min(low) as low from penstock_returned
           where group_id in (select value from json_each(:ids)) and members > 0 group by group_id, lanes, lane) r
   cross join penstock_groups g on g.group_id = r.group_id
   cross join penstock_bindings b on b.id = r.binding
  union all
  select l.group_id, (
         select e.created_at from penstock_events e indexed by penstock_events_stream
          where e.stream = g.stream and e."offset" > l.low and e."offset" <= l.high
            and {{in_lane(e., l.)}}
            and {{bound(b.id, e.)}}
            and (l.holes = '[]' or e."offset" not in (select value from json_each(l.holes)))
          order by e."offset" limit 1)
    from penstock_groups g
   cross join penstock_leases l indexed by penstock_leases_open on l.group_id = g.group_id
   cross join penstock_bindings b on b.id = l.binding
   where g.group_id in (select value from json_each(:ids)) and l.outcome is null and l.offsets is null) held
 group by group_id;

-- name: stats.oldest_beyond
-- The first event a group wants beyond the cursors of its lanes, as far as one look reaches.
select g.group_id, (
       select e.created_at from (
         select "offset", created_at, event_type, headers, {{bucket()}} as bucket
           from penstock_events indexed by penstock_events_stream
          where stream = g.stream and "offset" > max(g.after, b.low) and "offset" <= min(b.high, :upto)
          order by "offset" limit :scan) e
        where e."offset" > json_extract(g.cursors, '$[' || (e.bucket * g.lanes / 256) || ']')
          and {{bound(b.binding, e.)}}
          and not {{has_row(g.group_id, e.)}}
        order by e."offset" limit 1) as created_at
  from (select json_extract(value, '$.group_id') as group_id, json_extract(value, '$.stream') as stream,
               json_extract(value, '$.lanes') as lanes, json_extract(value, '$.after') as after,
               json_extract(value, '$.cursors') as cursors from json_each(:rows)) g
 cross join penstock_binding_span b on b.group_id = g.group_id;

-- name: stats.beyond
-- Wanted events beyond the cursors of a group that filters by header, as far as one look reaches.
with lanes as materialized (select lane, lanes, cursor from penstock_lane where group_id = :group_id),
     b as materialized (select * from penstock_binding_span where group_id = :group_id)
select coalesce(sum(wanted), 0) as wanted, count(*) as looked from (
  select e."offset" > l.cursor
         and {{bound(b.binding, e.)}} as wanted
    from (select * from penstock_events indexed by penstock_events_stream
           where stream = :stream and "offset" > (select min(cursor) from lanes) and "offset" <= :upto
           order by "offset" limit :most) e
    join lanes l on {{in_lane(e., l.)}}
    join b on e."offset" > b.low and e."offset" <= b.high) looked;

-- name: doctor.settings
select 'journal_mode' as name, journal_mode as setting from pragma_journal_mode
union all
select 'synchronous', case synchronous when 0 then 'off' when 1 then 'normal' when 2 then 'full' else 'extra' end
  from pragma_synchronous
union all
select 'sqlite_version', sqlite_version();

-- name: doctor.holders
-- Nobody can hold the horizon back: an open write transaction holds the whole file.
select null as pid, null as application_name, null as state, null as started_at where false;

-- name: doctor.indexes
select name from sqlite_master where type = 'index' and tbl_name glob 'penstock_*';

-- name: doctor.stuck
select l.id, g.stream, g.group_name, l.claimed_by, l.expires_at
  from penstock_leases l join penstock_groups g on g.group_id = l.group_id
 where l.outcome is null and l.expires_at < :now order by l.expires_at limit 20;

-- name: doctor.blocked
select g.stream, g.group_name, count(*) as rows
  from penstock_deliveries d join penstock_groups g on g.group_id = d.group_id
 where d.state = 'PENDING' and d.reason = 'blocked' group by 1, 2 having count(*) >= :most;

-- name: doctor.last_claim
select g.stream, g.group_name, (select max(claimed_at) from penstock_leases l where l.group_id = g.group_id) as claimed_at
  from penstock_groups g;

-- name: doctor.sequences
-- SQLite's own never fall behind: they are kept in the same file, by the same transaction.
select null as name, null as last, null as stored where false;

-- name: repair.sequence
select :name, :value where false;
