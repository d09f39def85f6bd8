-- name: inspect.deliveries
-- The comment in the WHERE becomes a list of offsets where events are named.
with page as materialized (
  select * from penstock_delivery v
   where v.group_id = :group_id and v."offset" > :after and v."offset" <= :upto
     and (:state is null or v.state = :state)
     and (not :hide or ({{shown(v.)}}))
     /* these */
     and {{of_type(v.)}}
     and {{of_error(v.)}}
     and {{of_kind(v.)}}
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

-- name: inspect.history
select h.attempt, h.failures, h.replays, h.outcome, h.error, h.error_code, h.claimed_by, h.claimed_at, h.ended_at, h.lease,
       h.at as happened_at, h."by", h.error_type, h.fingerprint, f.traceback
  from penstock_history h left join penstock_fingerprints f on f.fingerprint = h.fingerprint
 where h.group_id = :group_id and h."offset" = :offset
 order by h.at, h.lease nulls last, h.step, h.line;

-- name: dead.panel
-- Dead letters of a group, without those that were purged or mended.
select d."offset", d.event_id, d.event_type, d.ordering_key, d.attempts, d.failures, d.error_code, d.last_error,
       d.fingerprint, d.dead_at
  from penstock_deliveries d
 where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and d."offset" > :after
 order by d."offset" limit :limit;
