-- Pieces of statements that stand in several blocks; see `penstock.stores.blocks`. `e.` names the table `e`.

-- include: bucket(e)
-- The bucket of an event: its key's, or without a key one that its offset gives.
coalesce({{e}}bucket, mod({{e}}"offset", 256))

-- include: of_buckets(e)
-- Events that fall to a lane, by its buckets.
{{bucket({{e}})}} between %(first_bucket)s and %(last_bucket)s

-- include: due(group_id)
-- Whether a claim would find something now; a row behind another one of its key looks due, too. (The order is that of the
-- index, which the planner would not use for any row.)
(exists (select 1 from penstock.returned r where r.group_id = {{group_id}} and r.available_at <= %(now)s)
    or (select d."offset" from penstock.deliveries d
         where d.group_id = {{group_id}} and d.state = 'PENDING' and d.available_at <= %(now)s
         order by d.available_at, d."offset" limit 1) is not null
    or exists (select 1 from penstock.delivery v
                where v.group_id = {{group_id}} and v.state = 'PENDING' and v.attempts = 0 and v.reason is null
                  and v.available_at <= %(now)s and v."offset" <= %(horizon)s
                  and v."offset" > (select min(l.cursor) from penstock.lane l where l.group_id = {{group_id}})))

-- include: in_lane(e, l)
-- Events that fall to the lane of a lease or a range.
{{bucket({{e}})}} * {{l}}lanes / 256 = {{l}}lane

-- include: lane_rows
-- Rows of a group that fall to a lane.
group_id = %(group_id)s and bucket between %(first_bucket)s and %(last_bucket)s

-- include: these_rows
-- Rows of a group, by offset.
group_id = %(group_id)s and "offset" = any(%(offsets)s::bigint[])

-- include: unresolved(d)
-- Rows that hold their key back; also the predicate of an index.
{{d}}in_order and {{d}}state in ('PENDING', 'CLAIMED')

-- include: halting(d)
-- Dead letters that hold their key back, where they halt it; also the predicate of an index.
{{d}}in_order and {{d}}state = 'DEAD' and {{d}}reason is distinct from 'skipped' and {{shown({{d}})}}

-- include: shown(d)
-- Dead letters that were neither purged nor mended; also in the predicates of indexes.
{{d}}reason is distinct from 'purged' and {{d}}reason is distinct from 'mended'

-- include: dead_letters(d)
-- Dead letters that match an operator's filter. What was purged or mended is matched only by its id.
{{d}}group_id = %(group_id)s and {{d}}state = 'DEAD'
   and (%(event_ids)s::uuid[] is null or {{d}}event_id = any(%(event_ids)s::uuid[]))
   and (%(event_ids)s::uuid[] is not null or ({{shown({{d}})}}))
   and (%(cutoff)s::timestamptz is null or {{d}}dead_at <= %(cutoff)s::timestamptz)
   and {{of_error({{d}})}}
   and {{of_kind({{d}})}}
   and {{of_type({{d}})}}
   and ((%(since)s::timestamptz is null and %(until)s::timestamptz is null) or exists (
         select 1 from penstock.events e where e."offset" = {{d}}"offset"
            and {{created_between(e.)}}))

-- include: behind_others(d)
-- Dead letters behind another one of their key that halts it, and that does not match.
exists (select 1 from penstock.deliveries h
         where h.group_id = %(group_id)s and h.bucket = {{d}}bucket and h.ordering_key = {{d}}ordering_key
           and h."offset" < {{d}}"offset" and {{halting(h.)}} and ({{dead_letters(h.)}}) is not true)

-- include: in_range(e)
-- Events of a stream in (low, high].
{{e}}stream = %(stream)s and {{e}}"offset" > %(low)s and {{e}}"offset" <= %(high)s

-- include: of_wanted_type(e)
-- What a binding, given by its parameters, lets through by type …
(%(type_regex)s::text is null or {{e}}event_type ~ %(type_regex)s::text)

-- include: wanted(e)
-- … and by type and headers.
{{of_wanted_type({{e}})}}
   and (%(headers)s::jsonb is null or {{e}}headers @> %(headers)s::jsonb)

-- include: bound(e)
-- What the binding `b` lets through.
(b.type_regex is null or {{e}}event_type ~ b.type_regex)
   and (b.headers is null or {{e}}headers @> b.headers)

-- include: has_row(group, e)
-- Whether a delivery has a row of its own.
exists (select 1 from penstock.deliveries d where d.group_id = {{group}} and d."offset" = {{e}}"offset")

-- include: members_of_range
-- Events of a lane that a lease of a range holds.
{{of_buckets(e.)}}
   and {{wanted(e.)}}
   and e."offset" <> all(%(holes)s::bigint[])

-- include: of_lease
-- Events of the lane of a lease that is read.
stream = %(stream)s and e."offset" > %(low)s and e."offset" <= %(high)s
   and coalesce(bucket, mod(e."offset", 256)) between %(first_bucket)s and %(last_bucket)s

-- include: members_of_lease
-- What a lease contains follows from its own row, whenever it is asked.
  from penstock.events e join penstock.bindings b on b.id = %(binding)s
 where {{of_lease}}
   and (b.type_regex is null or event_type ~ b.type_regex) and (b.headers is null or e.headers @> b.headers)
   and e."offset" <> all(%(holes)s::bigint[])
 order by e."offset"

-- include: event_fields
-- What an appender says of an event.
stream, event_id, event_type, payload, content_type, headers, metadata, partition_key, ordering_key, bucket, available_at

-- include: event_columns(e)
-- An event as it is read: times and ids come as raw bytes and are decoded when somebody looks at them.
{{e}}"offset", uuid_send(event_id), event_type, payload, content_type, {{e}}headers::text, metadata::text, partition_key,
       ordering_key, timestamptz_send(available_at), timestamptz_send({{e}}created_at)

-- include: lease_records
-- Leases, each with the names of its group.
select l.*, g.stream, g.group_name from penstock.leases l join penstock.groups g using (group_id)

-- include: returned_columns
group_id, lane, lanes, binding, low, high, members, attempts, replay, available_at, reason, last_error, error_code,
       error_type, fingerprint, returned_at

-- include: row_columns
-- A row of a delivery, with which all others begin …
group_id, "offset", stream, group_name, event_id, event_type, ordering_key, bucket, in_order, state

-- include: row_of_event
-- … and what an event gives it, up to the state.
%(group_id)s, e."offset", e.stream, %(group_name)s, e.event_id, e.event_type, e.ordering_key, {{bucket(e.)}},
       (select ordering is not null from penstock.groups where group_id = %(group_id)s)

-- include: claims_of
-- How often an event was claimed in all its lives.
penstock.claims_of(%(group_id)s, e."offset", {{bucket(e.)}}::int)

-- include: earlier_attempts
-- How often it was claimed in earlier lives, if it may have had any.
case when not %(lived)s then 0 else {{claims_of}} - %(attempts)s::int end

-- include: unresolved_of_key
-- The first row that holds a key back, and the first dead letter that does.
(select "offset" from penstock.deliveries
         where group_id = %(group_id)s and bucket = k.bucket and ordering_key = k.ordering_key and {{unresolved()}}
         order by "offset" limit 1)
        union all
       (select "offset" from penstock.deliveries
         where %(halts)s and group_id = %(group_id)s and bucket = k.bucket and ordering_key = k.ordering_key
           and {{halting()}} order by "offset" limit 1)

-- include: held(keys, dated)
-- Keys that are held back, and from which offset on: the first unresolved row or dated event of each.
select ordering_key, min("offset") as "offset" from (
    select k.ordering_key, o."offset"
      from (select distinct bucket, ordering_key from {{keys}}) k
     cross join lateral (
       {{unresolved_of_key}}) o
     union all
    select ordering_key, "offset" from {{dated}}) stops
   group by ordering_key

-- include: numbered
-- Members and holes of a stretch, counted from its start.
select *, has_row or delayed or blocked as hole,
         count(*) filter (where not (has_row or delayed or blocked)) over (order by "offset") as member_no,
         count(*) filter (where has_row or delayed or blocked) over (order by "offset") as hole_no
    from placed

-- include: cut_range(scanned)
-- The range up to where it was cut: its members, and what it has to step over.
select c.high, count(*) filter (where not n.hole)::int as members,
       coalesce(array_agg(n."offset" order by n."offset") filter (where n.hole), '{}') as holes,
       coalesce(array_agg(n."offset" order by n."offset") filter (where n.delayed), '{}') as delayed,
       coalesce(array_agg(n."offset" order by n."offset") filter (where n.blocked), '{}') as blocked,
       {{scanned}} as scanned,
       (array_agg(n."offset" order by n."offset") filter (where not n.hole))::text as found
  from cut c left join numbered n on n."offset" <= c.high
 group by c.high

-- include: no_holes
-- A range that steps over nothing.
'{}'::bigint[] as holes, '{}'::bigint[] as delayed, '{}'::bigint[] as blocked

-- include: scanned
-- How many events were looked at: where none is a member, how many there were.
case when n > 0 then n
            else (select count(*)::int from (select 1 from penstock.events where {{in_range()}} limit %(scan)s) s) end as scanned

-- include: outcomes
-- What became of the members of a lease, one row for each.
select (m.value ->> 0)::bigint as "offset", (m.value ->> 1)::timestamptz as available_at, o.state, o.reason,
         o.failures, o.error, o.code, o.outcome, o.dead_at, o.part, o.error_type, o.fingerprint
    from jsonb_to_recordset(%(rows)s::jsonb) as o(members jsonb, state text, reason text, failures int, error text,
                                                    code text, outcome text, dead_at timestamptz, part bigint, error_type text,
                                                    fingerprint text)
   cross join jsonb_array_elements(o.members) m limit %(count)s

-- include: log_outcomes
-- A line in the attempt log for each outcome that was written.
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, claimed_by,
                                  claimed_at, ended_at, lease, error_type, fingerprint)
select %(group_id)s, w."offset", w.attempts, w.failures, w.replays, r.outcome, r.error, r.code, %(claimed_by)s,
       %(claimed_at)s, %(now)s, %(lease)s, r.error_type, r.fingerprint
  from written w join r on r."offset" = w."offset"

-- include: of_ids
-- Deliveries of the view, by event id: the view is asked for offsets, which every arm of it can look up.
(%(event_ids)s::uuid[] is null or v."offset" = any(array(
         select n."offset" from penstock.events n where n.event_id = any(%(event_ids)s::uuid[]))))

-- include: of_error(v)
-- Deliveries whose error has this code, or says this.
(%(error)s::text is null or {{v}}error_code = %(error)s or position(%(error)s in {{v}}last_error) > 0)

-- include: of_kind(v)
-- Deliveries with this fingerprint; "none" stands for those without one.
(%(fingerprint)s::text is null or {{v}}fingerprint = %(fingerprint)s
    or (%(fingerprint)s = 'none' and {{v}}fingerprint is null))

-- include: of_this_kind(v)
-- Deliveries of one kind of error; null is that of those without a fingerprint.
(({{v}}fingerprint = %(kind)s::text) or (%(kind)s::text is null and {{v}}fingerprint is null))

-- include: of_type(v)
(%(event_type)s::text is null or {{v}}event_type = %(event_type)s)

-- include: of_types(e)
(%(types)s::text[] is null or {{e}}event_type = any(%(types)s::text[]))

-- include: created_between(e)
(%(since)s::timestamptz is null or {{e}}created_at >= %(since)s::timestamptz)
   and (%(until)s::timestamptz is null or {{e}}created_at < %(until)s::timestamptz)

-- include: of_group(g)
-- One group, those of a stream, or all.
(%(stream)s::text is null or {{g}}stream = %(stream)s)
   and (%(group_name)s::text is null or {{g}}group_name = %(group_name)s)

-- include: delivery_columns(d)
{{d}}stream, {{d}}group_name, {{d}}"offset", {{d}}event_id::text, {{d}}event_type, {{d}}state, {{d}}attempts, {{d}}failures,
       {{d}}available_at, {{d}}claimed_at, {{d}}claimed_by, {{d}}last_error, {{d}}error_code, {{d}}reason, {{d}}published_at,
       {{d}}dead_at, {{d}}updated_at, {{d}}ordering_key, {{d}}lease

-- include: run_columns
id, name, app, engine, version, host, pid, to_json(groups)::text as groups, started_at, heartbeat_at, wanted, ended_at,
       outcome

-- include: wanted_of_run
-- What is wanted of the run that a lease belongs to.
(select r.wanted from penstock.runs r where r.id = run) as wanted

-- include: iso(moment)
-- A moment as text, in UTC.
to_char({{moment}} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')

-- include: waiters
-- The advisory lock that whoever waits for events holds.
'penstock.runs'::regclass::oid::int, 1

-- include: attempts_of_job(e)
-- How often a job may be tried, if it says so itself.
case when %(jobs)s then ({{e}}metadata -> 'penstock-job' ->> 'max_attempts')::int end

-- include: key_is_held(e)
-- Whether a unique key is a job's own for some more time, though it has finished.
exists (select 1 from penstock.job_unique u where u.event_id = {{e}}event_id and u.until_at > %(now)s)

-- include: metric_values
-- Flows and samples of a group.
published, failed, dead, released, lag, oldest_seconds, pending, claimed, retrying, dead_letters

-- include: metric_types
-- The same as they are sent.
published bigint, failed bigint, dead bigint, released bigint, lag bigint, oldest_seconds double precision, pending bigint,
         claimed bigint, retrying bigint, dead_letters bigint
