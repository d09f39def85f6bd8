-- name: operation.add
insert into penstock.operations (kind, stream, group_name, group_id, filter, cutoff_at, cutoff_offset, canary,
                                 rate_per_second, stop_on_return, reason, by, planned, state, phase, next_at, created_at)
values (%(kind)s, %(stream)s, %(group_name)s, %(group_id)s, %(filter)s, %(cutoff_at)s, %(cutoff_offset)s, %(canary)s,
        %(rate_per_second)s, %(stop_on_return)s, %(reason)s, %(by)s, %(planned)s, 'running', %(phase)s, %(now)s, %(now)s)
returning id;

-- name: operation.find
select * from penstock.operations where id = %(id)s;

-- name: operation.twin
-- Among the newest, an operation that does the same: one that has not ended, or was started after a plan was made.
select o.id, o.ended_at is null as runs from (select * from penstock.operations order by id desc limit 1000) o
 where o.group_id = %(group_id)s and o.kind = %(kind)s and o.filter = %(filter)s
   and (o.ended_at is null or o.created_at >= %(planned_at)s::timestamptz)
 order by o.id desc limit 1;

-- name: operation.back
-- What an operation has moved and is DEAD again, whatever of.
select d.event_id, d."offset", d.event_type, d.error_code, d.last_error, d.dead_at from penstock.deliveries d
 where d.operation = %(id)s and d.state = 'DEAD' limit %(limit)s;

-- name: operation.lock
select * from penstock.operations where id = %(id)s for update;

-- name: operation.page
-- The newest first; below an id, for the next page.
select * from penstock.operations
 where (%(before)s::bigint is null or id < %(before)s) and (%(state)s::text is null or state = %(state)s)
   and {{of_group()}}
 order by id desc limit %(limit)s;

-- name: operation.due
-- One whose time has come, or was set by a clock that was wrong.
select id from penstock.operations
 where state = 'running' and (next_at <= %(now)s or next_at > %(latest)s)
   and (expires_at is null or expires_at <= %(now)s or expires_at > %(latest)s or held_by = %(me)s)
 order by next_at limit 1;

-- name: operation.take
-- Whoever held it before may not move anything any more.
update penstock.operations set token = token + 1, held_by = %(me)s, expires_at = %(expires_at)s
 where id = %(id)s and state = 'running' and (next_at <= %(now)s or next_at > %(latest)s)
   and (expires_at is null or expires_at <= %(now)s or expires_at > %(latest)s or held_by = %(me)s)
returning token;

-- name: operation.write
update penstock.operations
   set state = %(state)s, phase = %(phase)s, note = %(note)s, moved_upto = %(moved_upto)s, moved = %(moved)s,
       returned = %(returned)s, canaries = %(canaries)s, canaries_ended = %(canaries_ended)s, rate_at = %(rate_at)s,
       next_at = %(next_at)s, expires_at = %(expires_at)s, started_at = %(started_at)s, ended_at = %(ended_at)s
 where id = %(id)s;

-- name: operation.leave
update penstock.operations set expires_at = null where id = %(id)s and token = %(token)s;

-- name: operation.put_off
-- A step went wrong: others come first.
update penstock.operations set note = %(note)s, next_at = %(next_at)s, expires_at = null where id = %(id)s and token = %(token)s;

-- name: operation.canaries
-- How many of the canaries are still on their way, and how many of those wait behind a key that has halted.
select count(*) as waiting,
       count(*) filter (where d.state = 'PENDING' and %(halts)s and exists (
         select 1 from penstock.deliveries h
          where h.group_id = %(group_id)s and h.bucket = d.bucket and h.ordering_key = d.ordering_key
            and h."offset" < d."offset" and {{halting(h.)}})) as held
  from penstock.deliveries d
 where d.group_id = %(group_id)s and d."offset" = any(%(offsets)s::bigint[]) and d.state in ('PENDING', 'CLAIMED');

-- name: operation.returned
-- What an operation has moved and is DEAD again: with the fingerprint that it had, or, if it had succeeded, with any.
select count(*) as deliveries from (
  select 1 from penstock.deliveries d
   where d.operation = %(id)s and d.state = 'DEAD' and d.error_code is distinct from 'killed'
     and (%(any_error)s or exists (
           select 1 from penstock.attempt_log a
            where a.group_id = d.group_id and a."offset" = d."offset" and a.outcome = 'redriven'
              and a.ended_at >= %(since)s and a.fingerprint is not distinct from d.fingerprint))
   limit %(most)s) back;
