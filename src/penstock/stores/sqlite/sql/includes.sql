-- Pieces of statements that stand in several blocks; see `penstock.stores.blocks`. `e.` names the table `e`.

-- include: bucket(e)
-- The bucket of an event: its key's, or without a key one that its offset gives.
coalesce({{e}}bucket, {{e}}"offset" % 256)

-- include: of_buckets(e)
-- Events that fall to a lane, by its buckets.
{{bucket({{e}})}} between :first_bucket and :last_bucket

-- include: due(group_id)
-- Whether a claim would find something now; a row behind another one of its key looks due, too.
(exists (select 1 from penstock_returned r where r.group_id = {{group_id}} and r.available_at <= :now)
    or exists (select 1 from penstock_deliveries d
                where d.group_id = {{group_id}} and d.state = 'PENDING' and d.available_at <= :now)
    or exists (select 1 from penstock_delivery v
                where v.group_id = {{group_id}} and v.state = 'PENDING' and v.attempts = 0 and v.reason is null
                  and v.available_at <= :now and v."offset" <= :horizon
                  and v."offset" > (select min(l.cursor) from penstock_lane l where l.group_id = {{group_id}})))

-- include: in_lane(e, l)
-- Events that fall to the lane of a lease or a range.
{{bucket({{e}})}} * {{l}}lanes / 256 = {{l}}lane

-- include: lane_rows
-- Rows of a group that fall to a lane.
group_id = :group_id and bucket between :first_bucket and :last_bucket

-- include: these_rows
-- Rows of a group, by offset.
group_id = :group_id and "offset" in (select value from json_each(:offsets))

-- include: unresolved(d)
-- Rows that hold their key back; also the predicate of an index.
{{d}}state <> 'PUBLISHED' and {{d}}state <> 'DEAD'

-- include: halting(d)
-- Dead letters that hold their key back, where they halt it; also the predicate of an index.
{{d}}state = 'DEAD' and {{d}}reason is not 'skipped' and {{shown({{d}})}}

-- include: shown(d)
-- Dead letters that were neither purged nor mended; also in the predicates of indexes.
{{d}}reason is not 'purged' and {{d}}reason is not 'mended'

-- include: dead_letters(d)
-- Dead letters that match an operator's filter. What was purged or mended is matched only by its id.
{{d}}group_id = :group_id and {{d}}state = 'DEAD'
   and (:event_ids is null or {{d}}event_id in (select value from json_each(:event_ids)))
   and (:event_ids is not null or ({{shown({{d}})}}))
   and (:cutoff is null or {{d}}dead_at <= :cutoff)
   and {{of_error({{d}})}}
   and {{of_kind({{d}})}}
   and {{of_type({{d}})}}
   and ((:since is null and :until is null) or exists (
         select 1 from penstock_events e where e."offset" = {{d}}"offset"
            and {{created_between(e.)}}))

-- include: behind_others(d)
-- Dead letters behind another one of their key that halts it, and that does not match.
exists (select 1 from penstock_deliveries h
         where h.group_id = :group_id and h.bucket = {{d}}bucket and h.ordering_key = {{d}}ordering_key
           and h."offset" < {{d}}"offset" and {{halting(h.)}} and ({{dead_letters(h.)}}) is not true)

-- include: in_range(e)
-- Events of a stream in (low, high].
{{e}}stream = :stream and {{e}}"offset" > :low and {{e}}"offset" <= :high

-- include: of_patterns(binding, e)
-- Events of the types that a binding names.
exists (
         select 1 from penstock_binding_types t where t.binding = {{binding}} and {{e}}event_type glob t."glob"
            and length({{e}}event_type) - length(replace({{e}}event_type, '.', '')) between t.min_dots and t.max_dots)

-- include: with_headers(headers, e)
-- Events that have all these headers.
not exists (
         select 1 from json_each({{headers}}) h
          where not exists (select 1 from json_each({{e}}headers) x where x.key = h.key and x.value = h.value))

-- include: wanted(e)
-- What a binding, given by its parameters, lets through.
(not exists (select 1 from penstock_binding_types where binding = :binding) or {{of_patterns(:binding, {{e}})}})
   and (:headers is null or {{with_headers(:headers, {{e}})}})

-- include: bound(id, e)
-- What the binding `b` lets through.
(b.types is null or {{of_patterns({{id}}, {{e}})}})
   and (b.headers is null or {{with_headers(b.headers, {{e}})}})

-- include: has_row(group, e)
-- Whether a delivery has a row of its own.
exists (select 1 from penstock_deliveries d where d.group_id = {{group}} and d."offset" = {{e}}"offset")

-- include: members_of_range
-- Events of a lane that a lease of a range holds.
{{of_buckets(e.)}}
   and {{wanted(e.)}}
   and e."offset" not in (select value from json_each(:holes))

-- include: members_of_lease
-- What a lease contains follows from its own row, whenever it is asked; without its lane and its holes.
  from penstock_bindings b
 cross join penstock_events e indexed by penstock_events_stream on e.stream = :stream
 where b.id = :binding and e."offset" > :low and e."offset" <= :high
   and {{bound(b.id, e.)}}

-- include: event_fields
-- What an appender says of an event.
stream, event_id, event_type, payload, content_type, headers, metadata, partition_key, ordering_key, bucket, available_at

-- include: event_columns
-- An event as it is read: times stay numbers and ids stay text until somebody looks at them.
e."offset", e.event_id, e.event_type, e.payload, e.content_type, e.headers, e.metadata, e.partition_key, e.ordering_key,
       e.available_at, e.created_at

-- include: group_columns
-- A group with its bindings, in order, and its circuit.
g.*, (select json_group_array(json_object(
                      'id', b.id, 'from_offset', b.from_offset, 'types', json(b.types), 'type_regex', b.type_regex,
                      'headers', b.headers))
               from (select * from penstock_bindings where group_id = g.group_id order by from_offset, id) b) as bindings,
       c.opened_at as circuit_opened_at, c.delay_seconds, c.probe_at, c.last_error, c.error_code, c.probe,
       (select l.expires_at from penstock_leases l where l.id = c.probe and l.outcome is null) as probe_expires_at
    from penstock_groups g left join penstock_circuits c on c.group_id = g.group_id

-- include: lease_records
-- Leases, each with the names of its group.
select l.*, g.stream, g.group_name from penstock_leases l join penstock_groups g on g.group_id = l.group_id

-- include: returned_columns
group_id, lane, lanes, binding, low, high, members, attempts, replay, available_at, reason, last_error, error_code,
       error_type, fingerprint, returned_at

-- include: row_columns
-- A row of a delivery, with which all others begin …
group_id, "offset", stream, group_name, event_id, event_type, ordering_key, bucket, state

-- include: row_of_event
-- … and what an event gives it, up to the state.
:group_id, e."offset", e.stream, :group_name, e.event_id, e.event_type, e.ordering_key, {{bucket(e.)}}

-- include: claims_of
-- How often an event was claimed in all its lives.
(select count(*) from penstock_leases c
         where c.group_id = :group_id and c.offsets is null and c.kept_from is null and c.high >= e."offset" and c.low < e."offset"
           and {{in_lane(e., c.)}}
           and e."offset" not in (select value from json_each(c.holes)))
       + (select count(*) from penstock_attempt_log a
           where a.group_id = :group_id and a."offset" = e."offset" and a.claimed_at is not null
             and not exists (select 1 from penstock_leases c where c.id = a.lease and c.offsets is null))

-- include: earlier_attempts
-- How often it was claimed in earlier lives, if it may have had any.
case when not :lived then 0 else
         {{claims_of}}
         - :attempts end

-- include: measured
-- How far a range goes that steps over nothing, and how many events were looked at.
select case when n = :most then last
            else coalesce((select "offset" from penstock_events indexed by penstock_events_stream
                            where {{in_range()}}
                            order by "offset" limit 1 offset :scan - 1), :high) end as high,
       n as members, '[]' as holes, '[]' as delayed, '[]' as blocked,
       case when n > 0 then n
            else (select count(*) from (select 1 from penstock_events indexed by penstock_events_stream
                                         where {{in_range()}}
                                         limit :scan) s) end as scanned,
       null as found
  from counted

-- include: fates
-- What became of the members of a lease, one row each. (An outcome is taken apart once, and not again for each of its members:
-- that would read the whole list of members for every one of them.)
(with o as materialized (
   select json_extract(value, '$.state') as state, json_extract(value, '$.reason') as reason,
          json_extract(value, '$.failures') as failures, json_extract(value, '$.outcome') as outcome,
          json_extract(value, '$.error') as error, json_extract(value, '$.code') as code,
          json_extract(value, '$.error_type') as error_type, json_extract(value, '$.fingerprint') as fingerprint,
          json_extract(value, '$.dead_at') as dead_at, json_extract(value, '$.part') as part,
          json_extract(value, '$.members') as members
     from json_each(:rows)
 )
 select json_extract(m.value, '$[0]') as "offset", json_extract(m.value, '$[1]') as available_at, o.state, o.reason,
        o.failures, o.outcome, o.error, o.code, o.error_type, o.fingerprint, o.dead_at, o.part
   from o cross join json_each(o.members) m)

-- include: log_outcomes
-- A line in the attempt log for each outcome.
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, error_code, claimed_by,
                                  claimed_at, ended_at, lease, error_type, fingerprint)
select d.group_id, d."offset", d.attempts, d.failures, d.replays, r.outcome, r.error, r.code, :claimed_by,
       :claimed_at, :now, :lease, r.error_type, r.fingerprint
  from {{fates}} r
 cross join penstock_deliveries d on d.group_id = :group_id and d."offset" = r."offset"

-- include: of_error(v)
-- Deliveries whose error has this code, or says this.
(:error is null or {{v}}error_code = :error or instr({{v}}last_error, :error) > 0)

-- include: of_kind(v)
-- Deliveries with this fingerprint; "none" stands for those without one.
(:fingerprint is null or {{v}}fingerprint = :fingerprint or (:fingerprint = 'none' and {{v}}fingerprint is null))

-- include: of_this_kind(v)
-- Deliveries of one kind of error; null is that of those without a fingerprint.
{{v}}fingerprint is :kind

-- include: of_type(v)
(:event_type is null or {{v}}event_type = :event_type)

-- include: of_types(e)
(:types is null or {{e}}event_type in (select value from json_each(:types)))

-- include: created_between(e)
(:since is null or {{e}}created_at >= :since) and (:until is null or {{e}}created_at < :until)

-- include: of_group(g)
-- One group, those of a stream, or all.
(:stream is null or {{g}}stream = :stream) and (:group_name is null or {{g}}group_name = :group_name)

-- include: delivery_columns(d)
{{d}}stream, {{d}}group_name, {{d}}"offset", {{d}}event_id, {{d}}event_type, {{d}}state, {{d}}attempts, {{d}}failures,
       {{d}}available_at, {{d}}claimed_at, {{d}}claimed_by, {{d}}last_error, {{d}}error_code, {{d}}reason, {{d}}published_at,
       {{d}}dead_at, {{d}}updated_at, {{d}}ordering_key, {{d}}lease

-- include: run_columns
id, name, app, engine, version, host, pid, "groups", started_at, heartbeat_at, wanted, ended_at, outcome

-- include: wanted_of_run
-- What is wanted of the run that a lease belongs to.
(select r.wanted from penstock_runs r where r.id = run) as wanted

-- include: iso(moment)
-- A moment as text, in UTC.
strftime('%Y-%m-%dT%H:%M:%S', {{moment}} / 1000000, 'unixepoch') || printf('.%06dZ', {{moment}} % 1000000)

-- include: cursor_lease(g, lane)
-- The lease that holds the cursor of a lane.
where c.group_id = {{g}}group_id and c.lanes = {{g}}lanes and c.lane = {{lane}} and c.fresh = 1
                  order by c.high desc limit 1

-- include: told_now
-- The time, if the caller has not said it.
coalesce(:now_at, cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer))

-- include: unique_is_free
-- Whether the job that has a unique key is finished, or gone, and its time is over.
(:always or (coalesce(u.until_at <= {{told_now}}, 1)
   and (not exists (select 1 from penstock_events e where e.event_id = u.event_id)
        or exists (select 1 from penstock_events e join penstock_delivery v on v.stream = e.stream and v."offset" = e."offset"
                    where e.event_id = u.event_id and v.group_name = 'workers' and v.state in ('PUBLISHED', 'DEAD')))))

-- include: attempts_of_job(e)
-- How often a job may be tried, if it says so itself.
case when :jobs then json_extract({{e}}metadata, '$.penstock-job.max_attempts') end

-- include: key_is_held(e)
-- Whether a unique key is a job's own for some more time, though it has finished.
exists (select 1 from penstock_job_unique u where u.event_id = {{e}}event_id and u.until_at > :now)

-- include: metric_values
-- Flows and samples of a group.
published, failed, dead, released, lag, oldest_seconds, pending, claimed, retrying, dead_letters

-- include: metric_sent
-- The same as they are sent.
value ->> 'published', value ->> 'failed', value ->> 'dead', value ->> 'released', value ->> 'lag', value ->> 'oldest_seconds',
       value ->> 'pending', value ->> 'claimed', value ->> 'retrying', value ->> 'dead_letters'

-- include: remove_rows
-- Remove the rows of a stream in (low, high], and their lines in the attempt log, but for those that are kept.
delete from penstock_deliveries
 where group_id in (select group_id from penstock_groups where stream = :stream)
   and "offset" > :low and "offset" <= :high and "offset" not in (select value from json_each(:kept))
;;
delete from penstock_attempt_log
 where group_id in (select group_id from penstock_groups where stream = :stream)
   and "offset" > :low and "offset" <= :high and "offset" not in (select value from json_each(:kept))
