-- name: replay.find
-- The comment in the WHERE becomes a list of offsets where events are named.
select v."offset", v.replays, {{has_row(:group_id, v.)}} as has_row
  from penstock_delivery v
 where v.group_id = :group_id and v.state = 'PUBLISHED' and v.stream = :stream
   and v."offset" > :after and v."offset" <= :upto
   /* these */
   and {{of_error(v.)}}
   and {{of_type(v.)}}
   and exists (select 1 from penstock_events e where e."offset" = v."offset"
                  and {{created_between(e.)}});

-- name: replay.log_rows
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, "by", ended_at)
select group_id, "offset", attempts, failures, replays, 'replayed',
       'published_at ' || {{iso(published_at)}},
       :by, :now
  from penstock_deliveries where {{these_rows}};

-- name: replay.move_rows
update penstock_deliveries
   set state = 'PENDING', attempts = 0, failures = 0, replays = replays + 1, published_at = null,
       earlier_attempts = earlier_attempts + attempts,
       available_at = :now, reason = 'replayed', updated_at = :now, operation = :operation
 where {{these_rows}} and state = 'PUBLISHED';

-- name: replay.log_ranged
insert into penstock_attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, "by", ended_at)
select v.group_id, v."offset", v.attempts, 0, v.replays, 'replayed',
       'published_at ' || {{iso(v.published_at)}},
       :by, :now
  from penstock_delivery v
 where v.group_id = :group_id and v.state = 'PUBLISHED' /* these */;

-- name: replay.move_ranged
insert into penstock_deliveries ({{row_columns}}, replays, available_at, reason, updated_at, operation, earlier_attempts)
select {{row_of_event}}, 'PENDING', r.value + 1, :now, 'replayed', :now, :operation,
       {{claims_of}}
  from json_each(:offsets) o
 cross join json_each(:replays) r on r.key = o.key
 cross join penstock_events e on e."offset" = o.value
 where e.stream = :stream;

-- name: replay.count
-- How many finished deliveries there are; not more than `most`.
select count(*) as deliveries from (
  select 1 from penstock_delivery v
   where v.group_id = :group_id and v.state = 'PUBLISHED' and v.stream = :stream
     and v."offset" > :after and v."offset" <= :upto
     /* these */
     and {{of_type(v.)}}
     and exists (select 1 from penstock_events e where e."offset" = v."offset"
                    and {{created_between(e.)}})
   limit :most);
