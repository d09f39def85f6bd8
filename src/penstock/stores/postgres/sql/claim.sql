-- name: claim.look
-- All that a claimer wants to know, in one look, once it is its turn: the group with its bindings, every lane, the time.
select * from penstock.claim_look(%(stream)s, %(group_name)s, %(now)s::timestamptz);

-- name: claim.first
-- A whole claim in one statement, where it is simple.
select (select wanted from penstock.runs where id = %(run)s) as wanted, c.*
  from penstock.claim_first(%(stream)s, %(group_name)s, %(now)s::timestamptz, %(claimed_by)s, %(seconds)s, %(most)s,
                            %(secret)s, %(run)s) c;

-- name: claim.returned
-- The lowest returned range of a lane; an unordered lane may pass over what is not due.
select * from penstock.returned
 where group_id = %(group_id)s and lanes = %(lanes)s and lane = %(lane)s
   and (%(ordered)s or available_at <= %(now)s)
 order by low limit 1;

-- name: claim.drop_returned
delete from penstock.returned where id = %(id)s;

-- name: claim.next_due
select (select min(available_at) from penstock.deliveries
         where group_id = %(group_id)s and state = 'PENDING' and available_at > %(now)s) as row_at,
       (select min(available_at) from penstock.returned
         where group_id = %(group_id)s and available_at > %(now)s) as returned_at;

-- name: claim.ripe
select count(*) >= %(most)s or bool_or(available_at <= %(waiting_since)s) as ripe from (
  select available_at from penstock.deliveries
   where group_id = %(group_id)s and state = 'PENDING' and available_at <= %(now)s
     and bucket between %(first_bucket)s and %(last_bucket)s
   order by available_at limit %(most)s) due;

-- name: claim.due_rows
select "offset", suspect_part as part from penstock.deliveries
 where group_id = %(group_id)s and state = 'PENDING' and available_at <= %(now)s
   and bucket between %(first_bucket)s and %(last_bucket)s
 order by available_at, "offset" limit %(most)s;

-- name: claim.ordered_rows
-- The rows of a key in offset order from its lowest unresolved one, ending before the first that is not due or belongs
-- to another part of a lost lease, and behind one that has failed: most of what failed fails again, and what was claimed
-- behind it would be claimed for nothing. (Dead letters are unresolved only where they halt their key.)
with unresolved as (
  select "offset", ordering_key, suspect_part as part, reason = 'retry' as failed,
         state = 'PENDING' and available_at <= %(now)s as due
    from penstock.deliveries
   where {{lane_rows}} and "offset" <= %(ceiling)s and {{unresolved()}}
  union all
  select "offset", ordering_key, suspect_part, false, false
    from penstock.deliveries
   where %(halts)s and {{lane_rows}} and "offset" <= %(ceiling)s and {{halting()}}
), turns as (
  select "offset", part, bool_and(due and same) over turn as clear from (
    select *, part is not distinct from first_value(part) over turn
              and not coalesce(lag(failed) over turn, false) as same from unresolved
    window turn as (partition by ordering_key, case when ordering_key is null then "offset" end order by "offset")) u
  window turn as (partition by ordering_key, case when ordering_key is null then "offset" end order by "offset")
)
select "offset", part from turns
 where clear
 order by "offset" limit %(most)s;

-- name: claim.mark_rows
update penstock.deliveries
   set state = 'CLAIMED', attempts = attempts + 1, claimed_at = %(now)s, claimed_by = %(claimed_by)s,
       lease = %(lease)s, updated_at = %(now)s
 where {{these_rows}} and state = 'PENDING'
returning "offset";

-- name: claim.blocked
select count(*) as rows from (
  select 1 from penstock.deliveries
   where {{lane_rows}} and {{unresolved()}} and state = 'PENDING' and reason = 'blocked' limit %(most)s) b;

-- name: claim.exceptions
-- Whether a range has anything to step over; it nearly never does. `high` is where it ends if it has not. The rows of a lane
-- are asked for in the order of their index: for any of them the planner might read the table, rows of other groups first.
select exists (select 1 from penstock.deliveries
                where group_id = %(group_id)s and "offset" > %(low)s and "offset" <= %(high)s
                  and bucket between %(first_bucket)s and %(last_bucket)s)
    or exists (select 1 from penstock.events
                where {{in_range()}}
                  and available_at is not null and available_at > %(now)s)
    or (%(ordered)s and (
         select "offset" from penstock.deliveries
          where {{lane_rows}} and ordering_key is not null and {{unresolved()}}
          order by bucket, ordering_key, "offset" limit 1) is not null)
    or (%(ordered)s and %(halts)s and (
         select "offset" from penstock.deliveries
          where {{lane_rows}} and ordering_key is not null and {{halting()}}
          order by bucket, ordering_key, "offset" limit 1) is not null) as any;

-- name: claim.whole_range
-- No filter, one lane, nothing to step over: the index alone answers.
select coalesce(case when count(*) = %(most)s then max("offset") end, %(high)s::bigint) as high, count(*)::int as members,
       {{no_holes}}, count(*)::int as scanned,
       null as found
  from (select "offset" from penstock.events
         where {{in_range()}}
         order by "offset" limit %(most)s) members;

-- name: claim.lane_range
-- Lanes, but no filter and nothing to step over: the index alone answers. No answer where the lane is so thin that a
-- long stretch does not fill the lease: that is for the plain range, which knows when to stop.
with counted as materialized (
  select count(*)::int as n, max("offset") as last from (
    select "offset" from penstock.events
     where stream = %(stream)s and "offset" > %(low)s and "offset" <= least(%(high)s, %(low)s::bigint + %(reach)s)
       and {{of_buckets()}}
     order by "offset" limit %(most)s) members
)
select case when n = %(most)s then last else %(high)s::bigint end as high, n as members, {{no_holes}},
       {{scanned}},
       null as found
  from counted where n = %(most)s or %(high)s <= %(low)s::bigint + %(reach)s;

-- name: claim.plain_range
-- A filter, but nothing to step over.
with counted as materialized (
  select array_agg("offset")::text as found, count(*)::int as n, max("offset") as last from (
    select "offset" from (
      select "offset", event_type, headers, {{bucket()}} as bucket from penstock.events
       where {{in_range()}}
       order by "offset" limit %(scan)s) scanned
     where bucket between %(first_bucket)s and %(last_bucket)s
       and {{wanted()}}
     limit %(most)s) members
)
select case when n = %(most)s then last
            else coalesce((select "offset" from penstock.events
                            where {{in_range()}}
                            order by "offset" offset %(scan)s - 1 limit 1), %(high)s::bigint) end as high,
       n as members, {{no_holes}},
       {{scanned}},
       found
  from counted;

-- name: claim.careful_range
-- The same with rows to step over, delayed events and, in an ordered group, keys that are held back: a key is, from its
-- lowest unresolved delivery or delayed event on. Each key of the stretch is looked up once. (`in`, because it is hashed
-- whatever the planner thinks of the number of rows; a join is not.)
with scanned as materialized (
  select "offset", ordering_key, event_type, headers, {{bucket()}} as bucket, available_at
    from penstock.events
   where {{in_range()}}
   order by "offset" limit %(scan)s
), with_rows as materialized (
  select "offset" from penstock.deliveries
   where group_id = %(group_id)s and "offset" > %(low)s and "offset" <= (select max("offset") from scanned)
), marked as materialized (
  select "offset", ordering_key, bucket, has_row, not has_row and coalesce(available_at > %(now)s, false) as delayed
    from (select *, "offset" in (select "offset" from with_rows) as has_row from scanned) s
   where s.bucket between %(first_bucket)s and %(last_bucket)s
     and {{wanted(s.)}}
), held as materialized (
  {{held(marked where %(ordered)s and ordering_key is not null,
         marked where %(ordered)s and ordering_key is not null and delayed)}}
), placed as (
  select m."offset", m.has_row, m.delayed,
         not m.has_row and not m.delayed and coalesce(h."offset" < m."offset", false) as blocked
    from marked m left join held h on h.ordering_key = m.ordering_key
), numbered as materialized (
  {{numbered}}
), cut as (
  select least(coalesce(min("offset") filter (where not hole and member_no = %(most)s), %(high)s::bigint),
               coalesce(min("offset") filter (where hole and hole_no = %(holes)s + 1) - 1, %(high)s::bigint),
               case when (select count(*) from scanned) = %(scan)s
                    then (select max("offset") from scanned) else %(high)s::bigint end) as high
    from numbered
)
{{cut_range((select count(*)::int from scanned s where s."offset" <= c.high))}};

-- name: claim.careful_lane
-- The same without a filter, mostly out of the index, which knows the lane of an event but not its key. Keys are looked up
-- only in buckets where some key waits. (`in`, because it is hashed whatever the planner thinks; each `order by … limit 1`
-- names the index that answers.)
with waiting as materialized (
  select b.bucket from generate_series(%(first_bucket)s::int, %(last_bucket)s::int) as b(bucket)
   where %(ordered)s
     and ((select true from penstock.deliveries
            where group_id = %(group_id)s and bucket = b.bucket and ordering_key is not null and {{unresolved()}}
            order by ordering_key, "offset" limit 1)
       or (%(halts)s and (
           select true from penstock.deliveries
            where group_id = %(group_id)s and bucket = b.bucket and ordering_key is not null and {{halting()}}
            order by ordering_key, "offset" limit 1)))
), lane as materialized (
  select "offset", {{bucket()}} as bucket from penstock.events
   where stream = %(stream)s and "offset" > %(low)s and "offset" <= least(%(high)s, %(low)s::bigint + %(reach)s)
     and {{of_buckets()}}
   order by "offset" limit %(most)s::int + %(holes)s::int
), stretch as materialized (
  select case when count(*) = %(most)s::int + %(holes)s::int then max("offset")
              else least(%(high)s, %(low)s::bigint + %(reach)s) end as high from lane
), dated as materialized (
  select "offset", ordering_key, {{bucket()}} as bucket from penstock.events
   where stream = %(stream)s and "offset" > %(low)s and "offset" <= (select high from stretch)
     and available_at is not null and available_at > %(now)s
     and {{of_buckets()}}
   order by "offset"
), with_rows as materialized (
  select "offset" from penstock.deliveries
   where group_id = %(group_id)s and "offset" > %(low)s and "offset" <= (select high from stretch)
), keyed as materialized (
  select l."offset", l.bucket, e.ordering_key
    from (select * from lane where bucket in (select bucket from waiting)
              or (%(ordered)s and bucket in (select bucket from dated)) offset 0) l
   cross join lateral (select ordering_key from penstock.events where "offset" = l."offset" offset 0) e
   where e.ordering_key is not null
), held as materialized (
  {{held(keyed, dated
     where %(ordered)s and ordering_key is not null and "offset" not in (select "offset" from with_rows))}}
), behind as materialized (
  select k."offset" from keyed k join held h on h.ordering_key = k.ordering_key where h."offset" < k."offset"
), placed as materialized (
  select "offset", has_row, dated and not has_row as delayed, behind and not has_row and not dated as blocked
    from (select "offset", "offset" in (select "offset" from with_rows) as has_row,
                 "offset" in (select "offset" from dated) as dated, "offset" in (select "offset" from behind) as behind
            from lane offset 0) l
), numbered as materialized (
  {{numbered}}
), cut as (
  select least(min("offset") filter (where not hole and member_no = %(most)s),
               min("offset") filter (where hole and hole_no = %(holes)s + 1) - 1,
               (select high from stretch)) as high
    from numbered
)
{{cut_range((select count(*)::int from (select 1 from penstock.events
                                         where stream = %(stream)s and "offset" > %(low)s and "offset" <= c.high
                                         limit %(scan)s) s))}};

-- name: claim.step_over
-- Rows for the holes of a range: delayed until their time, or blocked behind their key; with the error, if there is one,
-- that the range came back with.
insert into penstock.deliveries ({{row_columns}}, attempts, replays, last_error, error_code, error_type, fingerprint,
                                 available_at, reason, updated_at, earlier_attempts)
select {{row_of_event}}, 'PENDING', %(attempts)s, %(replays)s, %(last_error)s, %(error_code)s, %(error_type)s, %(fingerprint)s,
       greatest(coalesce(e.available_at, %(now)s), %(now)s),
       case when e."offset" = any(%(delayed)s::bigint[]) then 'delayed' else 'blocked' end, %(now)s,
       {{earlier_attempts}}
  from penstock.events e where e.stream = %(stream)s and e."offset" = any(%(offsets)s::bigint[]);

-- name: claim.ranges_before
-- Ranges of earlier claims that overlap a returned one, found by what they hold and not among all leases of the group
-- (`+ 0`). A lane lies within its parent's from before a doubling.
select low, high, holes from penstock.leases
 where group_id + 0 = %(group_id)s and offsets is null and int8range(low, high, '(]') && int8range(%(low)s, %(high)s, '(]')
   and kept_from is null
   and lane = %(lane)s * lanes / %(lanes)s;

-- name: claim.rows_before
-- Claims of events of a range as rows, and by those who killed them.
select a."offset", count(*)::int as claims from penstock.attempt_log a
 where a.group_id = %(group_id)s and a."offset" > %(low)s and a."offset" <= %(high)s and a.claimed_at is not null
   and not exists (select 1 from penstock.leases l where l.id = a.lease and l.offsets is null)
 group by a."offset" order by a."offset";

-- name: lease.open
with next as (select nextval('penstock.leases_id_seq') as id)
insert into penstock.leases (id, group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at, attempts,
                             replay, members, low, high, holes, offsets, fresh, total, open_before, run)
overriding system value
select id, %(group_id)s, %(lane)s, %(lanes)s, %(binding)s, (id << 20) | %(secret)s, %(claimed_by)s, %(now)s,
       %(expires_at)s, %(attempts)s, %(replay)s, %(members)s, %(low)s, %(high)s, %(holes)s::bigint[],
       %(offsets)s::bigint[], %(fresh)s, %(total)s, %(open_before)s::bigint[], %(run)s
  from next
returning id, token, {{wanted_of_run}};

-- name: lease.open_each
-- Leases of one event each, of one transaction: the last of them names all that are open.
with wanted as materialized (
  select n, nextval('penstock.leases_id_seq') as id, one
    from jsonb_array_elements(%(rows)s::jsonb) with ordinality as w(one, n) order by n
)
insert into penstock.leases (id, group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at, attempts,
                             replay, members, low, high, holes, offsets, fresh, total, open_before, run, kept_from, kept_at)
overriding system value
select id, %(group_id)s, 0, 1, %(binding)s, (id << 20) | (one ->> 'secret')::bigint, %(claimed_by)s, %(claimed_at)s,
       %(expires_at)s, %(attempts)s, %(replay)s, 1, (one ->> 'low')::bigint, (one ->> 'high')::bigint,
       '{}',
       case when one ? 'offsets' then array(select jsonb_array_elements_text(one -> 'offsets')::bigint) end, false,
       null,
       case when n < (select count(*) from wanted) then '{}'
            else %(open_before)s::bigint[] || array(select x.id from wanted x where x.n < w.n order by x.n) end,
       %(run)s, %(kept_from)s, %(kept_at)s
  from wanted w order by n
returning id, token, {{wanted_of_run}};

-- name: lease.open_ids
-- The open leases of a group without keys, as far as they are not listed.
select l.id from (select id, open_before from penstock.leases
                   where group_id = %(group_id)s and lanes = 1 and lane = 0 order by id desc limit 1) n
 cross join lateral (select * from penstock.leases where id = any(n.open_before || n.id) offset 0) l
 where l.outcome is null;

-- name: lease.move_rows
-- Rows that go on in leases of their own.
update penstock.deliveries d set lease = m.lease
  from jsonb_to_recordset(%(rows)s::jsonb) as m("offset" bigint, lease bigint)
 where d.group_id = %(group_id)s and d."offset" = m."offset" and d.state = 'CLAIMED' and d.lease = %(lease)s;

-- name: lease.end_empty
update penstock.leases set outcome = 'settled', upto = %(upto)s, answer = '{0,0,0,0}', ended_at = %(now)s,
       published = 0, failed = 0, dead = 0, released = 0
 where id = %(id)s;
