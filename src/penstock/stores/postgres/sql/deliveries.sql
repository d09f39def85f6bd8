-- name: inspect.deliveries
-- (The stream follows from the group, but only a stream that is named keeps the plan from reading the others.)
select v.stream, v.group_name, v."offset", v.event_id, v.event_type, v.state, v.attempts, v.failures, v.available_at,
       v.claimed_at, v.claimed_by, v.last_error, v.error_code, v.reason, v.published_at, v.dead_at, v.updated_at,
       v.total_attempts, v.error_type, v.fingerprint, e.payload, e.content_type, e.headers::text as headers, e.metadata::text as metadata, e.partition_key,
       e.ordering_key, e.created_at
  from penstock.delivery v
 cross join lateral (select * from penstock.events where "offset" = v."offset" offset 0) e
 where v.group_id = %(group_id)s and v.stream = %(stream)s and v."offset" > %(after)s and v."offset" <= %(upto)s
   and (%(state)s::text is null or v.state = %(state)s)
   and (not %(hide)s or ({{shown(v.)}}))
   and {{of_ids}}
   and {{of_type(v.)}}
   and {{of_error(v.)}}
   and {{of_kind(v.)}}
   and {{created_between(e.)}}
 order by v."offset" limit %(limit)s;

-- name: inspect.next
-- The lowest offset above `after` at which a delivery of a state may be: a row; for what waits, beyond a cursor or in a
-- range that came back; for what is in work, in an open lease.
select min("offset") as "offset" from (
  select min("offset") as "offset" from penstock.deliveries
   where group_id = %(group_id)s and "offset" > %(after)s and state = %(state)s
  union all
  select min(greatest(cursor, %(after)s)) + 1 from penstock.lane where group_id = %(group_id)s and %(state)s = 'PENDING'
  union all
  select min(greatest(low, %(after)s)) + 1 from penstock.returned
   where group_id = %(group_id)s and high > %(after)s and %(state)s = 'PENDING'
  union all
  select min(greatest(low, %(after)s)) + 1 from penstock.open_lease
   where group_id = %(group_id)s and high > %(after)s and %(state)s = 'CLAIMED') maybe;

-- name: inspect.type_from
-- Up to where a stream has no event of a type above an offset, as far as the tally knows it by its steps.
select coalesce(max(s.upto), 0) as upto from (select distinct upto from penstock.tally_step where stream = %(stream)s) s
 where s.upto > %(after)s
   and coalesce((select t.events from penstock.tally_step t
                  where t.stream = %(stream)s and t.upto = s.upto and t.event_type = %(event_type)s), 0)
     = coalesce((select t.events from penstock.tally_step t
                  where t.stream = %(stream)s and t.event_type = %(event_type)s
                    and t.upto = (select max(b.upto) from penstock.tally_step b
                                   where b.stream = %(stream)s and b.upto <= %(after)s)), 0);

-- name: inspect.history
select h.attempt, h.failures, h.replays, h.outcome, h.error, h.error_code, h.claimed_by, h.claimed_at, h.ended_at, h.lease,
       h.at, h.by, h.error_type, h.fingerprint, f.traceback
  from penstock.history h left join penstock.fingerprints f on f.fingerprint = h.fingerprint
 where h.group_id = %(group_id)s and h."offset" = %(offset)s
 order by h.at, h.lease nulls last, h.step, h.line;

-- name: dead.panel
-- Dead letters of a group, without those that were purged or mended.
select d."offset", d.event_id, d.event_type, d.ordering_key, d.attempts, d.failures, d.error_code, d.last_error,
       d.fingerprint, d.dead_at
  from penstock.deliveries d
 where d.group_id = %(group_id)s and d.state = 'DEAD' and {{shown(d.)}} and d."offset" > %(after)s
 order by d."offset" limit %(limit)s;
