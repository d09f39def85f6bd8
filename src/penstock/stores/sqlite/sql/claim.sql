-- name: claim.look
-- All that a claimer wants to know, in one look: per lane the cursor, the newest lease and those that are open (the
-- newest names those that were open before it); whether the group has anything but ranges; the last offset.
with recursive g as materialized (
  select {{group_columns}}
   where g.stream = :stream and g.group_name = :group_name
), lane(lane) as (
  select 0 from g union all select lane + 1 from lane, g where lane + 1 < g.lanes
), found as (
  select lane,
         (select f.id from penstock_leases f where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane
             and f.fresh = 1 order by f.high desc limit 1) as cursor_lease,
         (select max(f.id) from penstock_leases f
           where f.group_id = g.group_id and f.lanes = g.lanes and f.lane = l.lane) as last_lease
    from lane l cross join g
), newest as (
  select l.lane, c.high as cursor, c.total, n.id as last_lease,
         case when n.id is not null then n.offsets is null end as last_was_range, n.members - n.released as last_done,
         n.published + n.dead = n.members as last_was_clean,
         coalesce(json_insert(n.open_before, '$[#]', n.id), '[]') as candidates
    from found l
    left join penstock_leases c on c.id = l.cursor_lease
    left join penstock_leases n on n.id = l.last_lease
)
select g.*, lane, cursor, total, last_lease, last_was_range, last_done, last_was_clean,
       (select json_group_array(o.id) from json_each(candidates) j cross join penstock_leases o on o.id = j.value
         where o.outcome is null) as open_ids,
       (select json_group_array(o.id) from json_each(candidates) j cross join penstock_leases o on o.id = j.value
         where o.outcome is null and o.expires_at <= :now) as expired_ids,
       (select min(o.expires_at) from json_each(candidates) j cross join penstock_leases o on o.id = j.value
         where o.outcome is null) as expires_at,
       exists (select 1 from penstock_returned where group_id = g.group_id) as has_returned,
       (select min(low) from penstock_returned r
         where r.group_id = g.group_id and r.lanes = g.lanes and r.lane = newest.lane) as returned_low,
       exists (select 1 from penstock_deliveries where group_id = g.group_id) as has_rows,
       exists (select 1 from penstock_deliveries indexed by penstock_deliveries_turn
                where group_id = g.group_id and {{unresolved()}}
                  and bucket between lane * 256 / g.lanes and (lane + 1) * 256 / g.lanes - 1) as rows_wait,
       exists (select 1 from penstock_events indexed by penstock_events_delayed
                where stream = :stream and available_at is not null) as has_dated,
       (select coalesce(sum(o.members), 0) from json_each(candidates) j cross join penstock_leases o on o.id = j.value
         where o.outcome is null) as in_flight,
       coalesce((select seq from sqlite_sequence where name = 'penstock_events'), 0) as last, :now as looked_at
  from newest cross join g order by lane;

-- name: claim.returned
-- The lowest returned range of a lane; an unordered lane may pass over what is not due.
select * from penstock_returned
 where group_id = :group_id and lanes = :lanes and lane = :lane and (:ordered or available_at <= :now)
 order by low limit 1;

-- name: claim.drop_returned
delete from penstock_returned where id = :id;

-- name: claim.next_due
select (select min(available_at) from penstock_deliveries
         where group_id = :group_id and state = 'PENDING' and available_at > :now) as row_at,
       (select min(available_at) from penstock_returned
         where group_id = :group_id and available_at > :now) as returned_at;

-- name: claim.ripe
select count(*) >= :most or coalesce(max(available_at <= :waiting_since), 0) as ripe from (
  select available_at from penstock_deliveries indexed by penstock_deliveries_due
   where group_id = :group_id and state = 'PENDING' and available_at <= :now
     and bucket between :first_bucket and :last_bucket
   order by available_at limit :most);

-- name: claim.due_rows
select "offset", suspect_part as part
  from penstock_deliveries indexed by penstock_deliveries_due
 where group_id = :group_id and state = 'PENDING' and available_at <= :now
   and bucket between :first_bucket and :last_bucket
 order by available_at, "offset" limit :most;

-- name: claim.ordered_rows
-- The rows of a key in offset order from its lowest unresolved one, ending before the first that is not due or belongs
-- to another part of a lost lease, and behind one that has failed.
with unresolved as (
  select "offset", ordering_key, suspect_part as part, reason is 'retry' as failed,
         state = 'PENDING' and available_at <= :now as due
    from penstock_deliveries indexed by penstock_deliveries_turn
   where {{lane_rows}} and "offset" <= :ceiling and {{unresolved()}}
  union all
  select "offset", ordering_key, suspect_part, 0, 0
    from penstock_deliveries indexed by penstock_deliveries_halting
   where :halts and {{lane_rows}} and "offset" <= :ceiling and {{halting()}}
), turns as (
  select "offset", part, min(due and same) over turn as clear from (
    select *, part is first_value(part) over turn and not coalesce(lag(failed) over turn, 0) as same from unresolved
    window turn as (partition by ordering_key, case when ordering_key is null then "offset" end order by "offset")) u
  window turn as (partition by ordering_key, case when ordering_key is null then "offset" end order by "offset")
)
select "offset", part from turns
 where clear
 order by "offset" limit :most;

-- name: claim.mark_rows
update penstock_deliveries
   set state = 'CLAIMED', attempts = attempts + 1, claimed_at = :now, claimed_by = :claimed_by,
       lease = :lease, updated_at = :now
 where {{these_rows}} and state = 'PENDING'
returning "offset";

-- name: claim.blocked
select count(*) as rows from (
  select 1 from penstock_deliveries indexed by penstock_deliveries_turn
   where {{lane_rows}} and {{unresolved()}} and state = 'PENDING' and reason = 'blocked' limit :most) b;

-- name: claim.exceptions
-- Whether a range has anything to step over; it nearly never does. `high` is where it ends if it has not.
select exists (select 1 from penstock_deliveries
                where group_id = :group_id and "offset" > :low and "offset" <= :high
                  and bucket between :first_bucket and :last_bucket)
    or exists (select 1 from penstock_events indexed by penstock_events_delayed
                where {{in_range()}}
                  and available_at is not null and available_at > :now)
    or (:ordered and exists (
         select 1 from penstock_deliveries indexed by penstock_deliveries_turn
          where {{lane_rows}} and ordering_key is not null and {{unresolved()}}))
    or (:ordered and :halts and exists (
         select 1 from penstock_deliveries indexed by penstock_deliveries_halting
          where {{lane_rows}} and ordering_key is not null and {{halting()}})) as "any";

-- name: claim.whole_range
-- No filter, one lane, nothing to step over: the index alone answers.
select coalesce(case when count(*) = :most then max("offset") end, :high) as high, count(*) as members,
       '[]' as holes, '[]' as delayed, '[]' as blocked, count(*) as scanned, null as found
  from (select "offset" from penstock_events indexed by penstock_events_stream
         where {{in_range()}}
         order by "offset" limit :most) members;

-- name: claim.lane_range
-- Lanes, but no filter and nothing to step over: the index alone answers.
with members as materialized (
  select "offset" from (
    select "offset", {{bucket()}} as bucket
      from penstock_events indexed by penstock_events_stream
     where {{in_range()}}
     order by "offset" limit :scan) s
   where bucket between :first_bucket and :last_bucket
   order by "offset" limit :most
), counted as materialized (select count(*) as n, max("offset") as last from members)
{{measured}};

-- name: claim.plain_range
-- A filter, but nothing to step over.
with members as materialized (
  select "offset" from (
    select "offset", {{bucket()}} as bucket
      from penstock_events indexed by penstock_events_stream
     where {{in_range()}}
     order by "offset" limit :scan) s
   where bucket between :first_bucket and :last_bucket
     and ((:headers is null and not exists (select 1 from penstock_binding_types where binding = :binding)) or exists (
           select 1 from penstock_events e where e."offset" = s."offset"
              and {{wanted(e.)}}))
   order by "offset" limit :most
), counted as materialized (select count(*) as n, max("offset") as last from members)
{{measured}};

-- name: claim.careful_range
-- The same with rows to step over, delayed events and, in an ordered group, keys that are held back: a key is, from its
-- lowest unresolved delivery or delayed event on. Each key of the stretch is looked up once.
with scanned as materialized (
  select "offset", ordering_key, event_type, headers, {{bucket()}} as bucket, available_at
    from penstock_events indexed by penstock_events_stream
   where {{in_range()}}
   order by "offset" limit :scan
), marked as materialized (
  select s."offset", s.ordering_key, s.bucket, d."offset" is not null as has_row,
         d."offset" is null and s.available_at is not null and s.available_at > :now as delayed
    from scanned s
    left join penstock_deliveries d on d.group_id = :group_id and d."offset" = s."offset"
   where s.bucket between :first_bucket and :last_bucket
     and {{wanted(s.)}}
), keys as materialized (
  select distinct bucket, ordering_key from marked where :ordered and ordering_key is not null
), held as materialized (
  select ordering_key, min("offset") as "offset" from (
    select k.ordering_key,
           (select o."offset" from penstock_deliveries o indexed by penstock_deliveries_turn
             where o.group_id = :group_id and o.bucket = k.bucket and o.ordering_key = k.ordering_key
               and {{unresolved(o.)}} order by o."offset" limit 1) as "offset" from keys k
     union all
    select k.ordering_key,
           (select o."offset" from penstock_deliveries o indexed by penstock_deliveries_halting
             where o.group_id = :group_id and o.bucket = k.bucket and o.ordering_key = k.ordering_key
               and {{halting(o.)}} order by o."offset" limit 1) as "offset"
      from keys k where :halts
     union all
    select ordering_key, "offset" from marked where :ordered and ordering_key is not null and delayed)
   where "offset" is not null group by ordering_key
), placed as (
  select m."offset", m.has_row, m.delayed,
         not m.has_row and not m.delayed and coalesce(h."offset" < m."offset", 0) as blocked
    from marked m left join held h on h.ordering_key = m.ordering_key
), numbered as materialized (
  select "offset", delayed, blocked, has_row or delayed or blocked as hole,
         sum(not (has_row or delayed or blocked)) over (order by "offset") as member_no,
         sum(has_row or delayed or blocked) over (order by "offset") as hole_no
    from placed
), cut as materialized (
  select min(coalesce((select min("offset") from numbered where not hole and member_no = :most), :high),
             coalesce((select min("offset") - 1 from numbered where hole and hole_no = :holes + 1), :high),
             case when (select count(*) from scanned) = :scan
                  then (select max("offset") from scanned) else :high end) as high
)
select c.high, (select count(*) from numbered n where n."offset" <= c.high and not n.hole) as members,
       (select json_group_array("offset") from (
          select n."offset" from numbered n where n."offset" <= c.high and n.hole order by n."offset")) as holes,
       (select json_group_array("offset") from (
          select n."offset" from numbered n where n."offset" <= c.high and n.delayed order by n."offset")) as delayed,
       (select json_group_array("offset") from (
          select n."offset" from numbered n where n."offset" <= c.high and n.blocked order by n."offset")) as blocked,
       (select count(*) from scanned s where s."offset" <= c.high) as scanned,
       null as found
  from cut c;

-- name: claim.step_over
-- Rows for the holes of a range: delayed until their time, or blocked behind their key; with the error, if there is one,
-- that the range came back with.
insert into penstock_deliveries ({{row_columns}}, attempts, replays, last_error, error_code, error_type, fingerprint,
                                 available_at, reason, updated_at, earlier_attempts)
select {{row_of_event}}, 'PENDING', :attempts, :replays, :last_error, :error_code, :error_type,
       :fingerprint, max(coalesce(e.available_at, :now), :now),
       case when e."offset" in (select value from json_each(:delayed)) then 'delayed' else 'blocked' end, :now,
       {{earlier_attempts}}
  from json_each(:offsets) o cross join penstock_events e on e."offset" = o.value
 where e.stream = :stream;

-- name: claim.ranges_before
-- Ranges of earlier claims that overlap a returned one. A lane lies within its parent's from before a doubling.
select low, high, holes from penstock_leases
 where group_id = :group_id and offsets is null and kept_from is null and high > :low and low < :high
   and lane = :lane * lanes / :lanes;

-- name: claim.rows_before
-- Claims of events of a range as rows, and by those who killed them.
select a."offset", count(*) as claims from penstock_attempt_log a
 where a.group_id = :group_id and a."offset" > :low and a."offset" <= :high and a.claimed_at is not null
   and not exists (select 1 from penstock_leases l where l.id = a.lease and l.offsets is null)
 group by a."offset" order by a."offset";

-- name: lease.open
insert into penstock_leases (id, group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at, attempts,
                             replay, members, low, high, holes, offsets, fresh, total, open_before, run)
select id, :group_id, :lane, :lanes, :binding, (id << 20) | :secret, :claimed_by, :now,
       :expires_at, :attempts, :replay, :members, :low, :high, :holes, :offsets, :fresh, :total, :open_before, :run
  from (select coalesce((select seq from sqlite_sequence where name = 'penstock_leases'), 0) + 1 as id) next
returning id, token, {{wanted_of_run}};

-- name: lease.open_each
-- Leases of one event each, of one transaction: the last of them names all that are open.
with first as (select coalesce((select seq from sqlite_sequence where name = 'penstock_leases'), 0) as id),
     wanted as (select cast(j.key as integer) + 1 as n, j.value as one from json_each(:rows) j)
insert into penstock_leases (id, group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at, attempts,
                             replay, members, low, high, holes, offsets, fresh, total, open_before, run, kept_from, kept_at)
select f.id + w.n, :group_id, 0, 1, :binding, ((f.id + w.n) << 20) | (w.one ->> 'secret'), :claimed_by, :claimed_at,
       :expires_at, :attempts, :replay, 1, w.one ->> 'low', w.one ->> 'high', '[]',
       w.one -> 'offsets', 0, null,
       case when w.n < json_array_length(:rows) then '[]'
            else (select json_group_array(o) from (select value as o from json_each(:open_before)
                   union all select f.id + x.n from wanted x where x.n < w.n)) end,
       :run, :kept_from, :kept_at
  from wanted w cross join first f order by w.n
returning id, token, {{wanted_of_run}};

-- name: lease.open_ids
-- The open leases of a group.
select id from penstock_leases where group_id = :group_id and outcome is null;

-- name: lease.move_rows
-- Rows that go on in leases of their own.
update penstock_deliveries set lease = (select j.value ->> 'lease' from json_each(:rows) j
                                         where j.value ->> 'offset' = penstock_deliveries."offset")
 where group_id = :group_id and "offset" in (select j.value ->> 'offset' from json_each(:rows) j) and state = 'CLAIMED'
   and lease = :lease;

-- name: lease.end_empty
update penstock_leases set outcome = 'settled', upto = :upto, answer = '[0,0,0,0]', ended_at = :now,
       published = 0, failed = 0, dead = 0, released = 0
 where id = :id;
