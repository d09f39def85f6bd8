-- name: replay.find
-- From the deliveries' side, within the offsets that the time leaves; each event is looked up once.
select v."offset", v.replays, {{has_row(v.group_id, v.)}} as has_row
  from penstock.delivery v
 cross join lateral (select created_at from penstock.events where "offset" = v."offset" offset 0) e
 where v.group_id = %(group_id)s and v.state = 'PUBLISHED' and v.stream = %(stream)s
   and v."offset" > %(after)s and v."offset" <= %(upto)s
   and {{of_ids}}
   and {{of_error(v.)}}
   and {{of_type(v.)}}
   and {{created_between(e.)}};

-- name: replay.log_rows
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, by, ended_at)
select group_id, "offset", attempts, failures, replays, 'replayed',
       'published_at ' || {{iso(published_at)}}, %(by)s, %(now)s
  from penstock.deliveries where {{these_rows}};

-- name: replay.move_rows
update penstock.deliveries
   set state = 'PENDING', attempts = 0, failures = 0, replays = replays + 1, published_at = null,
       earlier_attempts = earlier_attempts + attempts,
       available_at = %(now)s, reason = 'replayed', updated_at = %(now)s, operation = %(operation)s
 where {{these_rows}} and state = 'PUBLISHED';

-- name: replay.log_ranged
insert into penstock.attempt_log (group_id, "offset", attempt, failures, replays, outcome, error, by, ended_at)
select v.group_id, v."offset", v.attempts, 0, v.replays, 'replayed',
       'published_at ' || {{iso(v.published_at)}}, %(by)s, %(now)s
  from penstock.delivery v
 where v.group_id = %(group_id)s and v.state = 'PUBLISHED' and v."offset" = any(%(offsets)s::bigint[]);

-- name: replay.move_ranged
insert into penstock.deliveries ({{row_columns}}, replays, available_at, reason, updated_at, operation, earlier_attempts)
select {{row_of_event}}, 'PENDING', r.replays + 1, %(now)s, 'replayed', %(now)s, %(operation)s::bigint,
       {{claims_of}}
  from unnest(%(offsets)s::bigint[], %(replays)s::int[]) as r("offset", replays)
  join penstock.events e on e."offset" = r."offset" and e.stream = %(stream)s;

-- name: replay.count
-- How many finished deliveries there are; not more than `most`.
select count(*) as deliveries from (
  select 1 from penstock.delivery v
   cross join lateral (select created_at from penstock.events where "offset" = v."offset" offset 0) e
   where v.group_id = %(group_id)s and v.state = 'PUBLISHED' and v.stream = %(stream)s
     and v."offset" > %(after)s and v."offset" <= %(upto)s
     and {{of_ids}}
     and {{of_type(v.)}}
     and {{created_between(e.)}}
   limit %(most)s) found;
