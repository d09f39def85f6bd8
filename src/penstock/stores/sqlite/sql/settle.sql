-- name: settle.whole
-- The happy path: a whole range is done, and one row says so. Touches nothing unless the holder asks in time.
update penstock_leases
   set outcome = 'settled', upto = high, digest = :digest, answer = json_array(members, 0, 0, 0), ended_at = :now,
       published = members, failed = 0, dead = 0, released = 0
 where id = :id and token = :token and outcome is null and expires_at > :now and high = :upto
   and not exists (select 1 from penstock_circuits c where c.group_id = penstock_leases.group_id and c.probe = penstock_leases.id)
returning members;

-- name: settle.members
-- Members of a range: all, or those of some keys. An event of a range has no row, and so no failures.
select e."offset", e.ordering_key, case when :aged then e.created_at end as created_at, 0 as failures,
       {{attempts_of_job(e.)}} as max_attempts
  from penstock_events e indexed by penstock_events_stream
 where {{in_range(e.)}}
   and {{members_of_range}}
   and (:keys is null or e.ordering_key in (select value from json_each(:keys)))
 order by e."offset";

-- name: settle.named_members
-- Members of a range, by offset.
select e."offset", e.ordering_key, case when :aged then e.created_at end as created_at, 0 as failures,
       {{attempts_of_job(e.)}} as max_attempts
  from json_each(:offsets) named cross join penstock_events e on e."offset" = named.value
 where {{in_range(e.)}}
   and {{members_of_range}};

-- name: settle.member_rows
-- Members of a lease of rows: all that it lists or some of them, or those of some keys; with the failures each had before.
select d."offset", d.ordering_key, d.failures,
       case when :aged then (select e.created_at from penstock_events e where e."offset" = d."offset") end as created_at,
       (select {{attempts_of_job(e.)}} from penstock_events e where e."offset" = d."offset") as max_attempts
  from json_each(:offsets) listed
 cross join penstock_deliveries d on d.group_id = :group_id and d."offset" = listed.value
 where d.lease = :lease and (:keys is null or d.ordering_key in (select value from json_each(:keys)))
 order by d."offset";

-- name: settle.count_tail
-- Wanted events of a range; with a group, only those without a row of their own.
select count(*) as members from penstock_events e indexed by penstock_events_stream
 where {{in_range(e.)}}
   and {{members_of_range}}
   and (:without_rows_of is null or not exists (
         select 1 from penstock_deliveries d where d.group_id = :without_rows_of and d."offset" = e."offset"));

-- name: settle.insert_rows
-- Exceptions out of a range: each gets a row, born as the outcome of this open lease.
insert into penstock_deliveries ({{row_columns}}, attempts, failures, replays, available_at, lease, last_error, error_code, reason,
                                 dead_at, published_at, suspect_part, updated_at, error_type, fingerprint, earlier_attempts)
select {{row_of_event}}, r.state, :attempts, r.failures, :replays, r.available_at,
       :lease, case when r.state <> 'PUBLISHED' then r.error end, case when r.state <> 'PUBLISHED' then r.code end,
       r.reason, r.dead_at, case when r.state = 'PUBLISHED' then :now end, r.part, :now, r.error_type, r.fingerprint,
       {{earlier_attempts}}
  from {{fates}} r
 cross join penstock_events e on e."offset" = r."offset"
 where e.stream = :stream
;;
{{log_outcomes}};

-- name: settle.update_rows
-- Exceptions out of a list. (The LIMIT keeps SQLite from looking for each row's outcome instead of each outcome's row.)
update penstock_deliveries as d
   set state = r.state, claimed_at = null, claimed_by = null, failures = d.failures + r.failures,
       available_at = r.available_at, reason = r.reason, dead_at = r.dead_at, updated_at = :now,
       published_at = case when r.state = 'PUBLISHED' then :now end,
       last_error = case when r.state <> 'PUBLISHED' then coalesce(r.error, d.last_error) end,
       error_code = case when r.state <> 'PUBLISHED' then coalesce(r.code, d.error_code) end,
       -- A part ends with a failure of its own; what died alone stays alone until it is resolved.
       suspect_part = case when r.state <> 'PENDING' then null when r.part is not null then r.part
                           when r.failures = 0 or d.suspect_part < 0 then d.suspect_part end,
       error_type = case when r.error is null then d.error_type else r.error_type end,
       fingerprint = case when r.error is null then d.fingerprint else r.fingerprint end
  from (select x.rowid as id, f.*
          from {{fates}} f cross join penstock_deliveries x on x.group_id = :group_id and x."offset" = f."offset"
         limit -1) r
 where d.rowid = r.id and d.state = 'CLAIMED' and d.lease = :lease
;;
{{log_outcomes}}
 where d.state <> 'CLAIMED';

-- name: settle.publish_rows
-- What a row failed with before is history, and so is its success: each leaves a line in the attempt log.
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, claimed_by, claimed_at, ended_at,
                                  lease)
select d.group_id, d."offset", d.attempts, d.failures, d.replays, 'published', :claimed_by, :claimed_at, :now, :lease
  from json_each(:offsets) o cross join penstock_deliveries d on d.group_id = :group_id and d."offset" = o.value
 where d.state = 'CLAIMED' and d.lease = :lease
;;
update penstock_deliveries
   set state = 'PUBLISHED', published_at = :now, claimed_at = null, claimed_by = null, reason = null, last_error = null,
       error_code = null, error_type = null, fingerprint = null, suspect_part = null, updated_at = :now
 where {{these_rows}} and state = 'CLAIMED'
   and lease = :lease;

-- name: settle.fingerprints
-- Kinds of errors, each once; a traceback that was missing so far is kept.
insert into penstock_fingerprints as f (fingerprint, error_code, error_type, message, traceback, first_at)
select json_extract(value, '$.fingerprint'), json_extract(value, '$.code'), json_extract(value, '$.error_type'),
       json_extract(value, '$.message'), json_extract(value, '$.traceback'), :now
  from json_each(:rows) where true
on conflict (fingerprint) do update set traceback = excluded.traceback
 where f.traceback is null and excluded.traceback is not null;

-- name: returned.add
insert into penstock_returned ({{returned_columns}})
values (:group_id, :lane, :lanes, :binding, :low, :high, :members, :attempts, :replay, :available_at, :reason,
        :last_error, :error_code, :error_type, :fingerprint, :returned_at);

-- name: lease.end
update penstock_leases
   set outcome = :outcome, upto = :upto, digest = :digest, answer = :answer, ended_at = :now,
       published = :published, failed = :failed, dead = :dead, released = :released,
       last_error = :last_error, error_code = :error_code, error_type = :error_type, fingerprint = :fingerprint
 where id = :id;
