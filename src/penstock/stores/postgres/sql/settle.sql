-- name: settle.whole
-- The happy path: a whole range is done, and one row says so. Touches nothing unless the holder asks in time.
select members from penstock.settle_whole(%(id)s, %(token)s, %(now)s::timestamptz, %(upto)s, %(digest)s) as members;

-- name: settle.members
-- Members of a range: all, or those of some keys. An event of a range has no row, and so no failures.
select e."offset", e.ordering_key, case when %(aged)s then e.created_at end as created_at, 0 as failures,
       {{attempts_of_job(e.)}} as max_attempts
  from penstock.events e
 where e.stream = %(stream)s and e."offset" > %(low)s::bigint and e."offset" <= %(high)s::bigint
   and {{members_of_range}}
   and (%(keys)s::text[] is null or e.ordering_key = any(%(keys)s::text[]))
 order by e."offset";

-- name: settle.named_members
-- Members of a range, by offset; each is looked up, whatever the planner thinks of reading the range.
select e."offset", e.ordering_key, case when %(aged)s then e.created_at end as created_at, 0 as failures,
       {{attempts_of_job(e.)}} as max_attempts
  from unnest(%(offsets)s::bigint[]) as named("offset")
 cross join lateral (select * from penstock.events where "offset" = named."offset" offset 0) e
 where e.stream = %(stream)s and e."offset" > %(low)s::bigint and e."offset" <= %(high)s::bigint
   and {{members_of_range}};

-- name: settle.member_rows
-- Members of a lease of rows: all that it lists or some of them, or those of some keys; with the failures each had before.
select d."offset", d.ordering_key, d.failures,
       case when %(aged)s then (select e.created_at from penstock.events e where e."offset" = d."offset") end as created_at,
       (select {{attempts_of_job(e.)}} from penstock.events e where e."offset" = d."offset") as max_attempts
  from unnest(%(offsets)s::bigint[]) as listed("offset")
 cross join lateral (select * from penstock.deliveries
                      where group_id = %(group_id)s and "offset" = listed."offset" offset 0) d
 where d.lease = %(lease)s and (%(keys)s::text[] is null or d.ordering_key = any(%(keys)s::text[]))
 order by d."offset";

-- name: settle.count_tail
-- Wanted events of a range; with a group, only those without a row of their own.
select count(*)::int as members from penstock.events e
 where {{in_range(e.)}}
   and {{members_of_range}}
   and (%(without_rows_of)s::int is null or not exists (
         select 1 from penstock.deliveries d where d.group_id = %(without_rows_of)s::int and d."offset" = e."offset"));

-- name: settle.insert_rows
-- Exceptions out of a range: each gets a row, born as the outcome of this open lease, and a line in the attempt log.
-- (The LIMIT tells the planner how many there are, and OFFSET 0 that each event is to be looked up.)
with r as materialized (
  {{outcomes}}
), written as (
  insert into penstock.deliveries ({{row_columns}}, attempts, failures, replays, available_at, lease, last_error, error_code,
                                   reason, dead_at, published_at, suspect_part, updated_at, error_type, fingerprint,
                                   earlier_attempts)
  select {{row_of_event}}, r.state, %(attempts)s, r.failures, %(replays)s, r.available_at,
         case when r.state <> 'PENDING' then %(lease)s::bigint end, case when r.state <> 'PUBLISHED' then r.error end,
         case when r.state <> 'PUBLISHED' then r.code end, r.reason, r.dead_at,
         case when r.state = 'PUBLISHED' then %(now)s::timestamptz end, r.part, %(now)s, r.error_type, r.fingerprint,
         {{earlier_attempts}}
    from r cross join lateral (select * from penstock.events where "offset" = r."offset" offset 0) e
   where e.stream = %(stream)s
  returning "offset", attempts, failures, replays
)
{{log_outcomes}};

-- name: settle.update_rows
-- Exceptions out of a list, and a line in the attempt log for each; nobody else changes rows of an open lease.
with r as materialized (
  {{outcomes}}
), written as (
  update penstock.deliveries d
     set state = r.state, claimed_at = null, claimed_by = null, lease = null, failures = d.failures + r.failures,
         available_at = r.available_at, reason = r.reason, dead_at = r.dead_at, updated_at = %(now)s,
         published_at = case when r.state = 'PUBLISHED' then %(now)s::timestamptz end,
         last_error = case when r.state <> 'PUBLISHED' then coalesce(r.error, d.last_error) end,
         error_code = case when r.state <> 'PUBLISHED' then coalesce(r.code, d.error_code) end,
         -- A part ends with a failure of its own; what died alone stays alone until it is resolved.
         suspect_part = case when r.state <> 'PENDING' then null when r.part is not null then r.part
                             when r.failures = 0 or d.suspect_part < 0 then d.suspect_part end,
         error_type = case when r.error is null then d.error_type else r.error_type end,
         fingerprint = case when r.error is null then d.fingerprint else r.fingerprint end
    from r cross join lateral (select ctid as place from penstock.deliveries
                                where group_id = %(group_id)s and "offset" = r."offset" and state = 'CLAIMED'
                                  and lease = %(lease)s offset 0) found
   where d.ctid = found.place
  returning d."offset", d.attempts, d.failures, d.replays
)
{{log_outcomes}};

-- name: settle.publish_rows
-- What a row failed with before is history, and so is its success: each leaves a line in the attempt log.
with written as (
  update penstock.deliveries
     set state = 'PUBLISHED', published_at = %(now)s, claimed_at = null, claimed_by = null, lease = null, reason = null,
         last_error = null, error_code = null, error_type = null, fingerprint = null, suspect_part = null,
         updated_at = %(now)s
   where {{these_rows}} and state = 'CLAIMED'
     and lease = %(lease)s
  returning "offset", attempts, failures, replays
)
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, claimed_by, claimed_at, ended_at,
                                  lease)
select %(group_id)s, "offset", attempts, failures, replays, 'published', %(claimed_by)s, %(claimed_at)s, %(now)s, %(lease)s
  from written;

-- name: settle.fingerprints
-- Kinds of errors, each once; a traceback that was missing so far is kept.
insert into penstock.fingerprints as f (fingerprint, error_code, error_type, message, traceback, first_at)
select k.fingerprint, k.code, k.error_type, k.message, k.traceback, %(now)s
  from jsonb_to_recordset(%(rows)s::jsonb) as k(fingerprint text, code text, error_type text, message text, traceback text)
 order by k.fingerprint
on conflict (fingerprint) do update set traceback = excluded.traceback
 where f.traceback is null and excluded.traceback is not null;

-- name: returned.add
insert into penstock.returned ({{returned_columns}})
values (%(group_id)s, %(lane)s, %(lanes)s, %(binding)s, %(low)s, %(high)s, %(members)s, %(attempts)s, %(replay)s,
        %(available_at)s, %(reason)s, %(last_error)s, %(error_code)s, %(error_type)s, %(fingerprint)s, %(returned_at)s);

-- name: lease.end
update penstock.leases
   set outcome = %(outcome)s, upto = %(upto)s, digest = %(digest)s, answer = %(answer)s::int[], ended_at = %(now)s,
       published = %(published)s, failed = %(failed)s, dead = %(dead)s, released = %(released)s,
       last_error = %(last_error)s, error_code = %(error_code)s, error_type = %(error_type)s, fingerprint = %(fingerprint)s
 where id = %(id)s;
