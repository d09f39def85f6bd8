-- name: operation.add
insert into penstock_operations (kind, stream, group_name, group_id, filter, cutoff_at, cutoff_offset, canary,
                                 rate_per_second, stop_on_return, reason, "by", planned, state, phase, next_at, created_at)
values (:kind, :stream, :group_name, :group_id, :filter, :cutoff_at, :cutoff_offset, :canary,
        :rate_per_second, :stop_on_return, :reason, :by, :planned, 'running', :phase, :now, :now)
returning id;

-- name: operation.find
select * from penstock_operations where id = :id;

-- name: operation.twin
-- Among the newest, an operation that does the same: one that has not ended, or was started after a plan was made.
select o.id, o.ended_at is null as runs from (select * from penstock_operations order by id desc limit 1000) o
 where o.group_id = :group_id and o.kind = :kind and o.filter = :filter
   and (o.ended_at is null or o.created_at >= :planned_at)
 order by o.id desc limit 1;

-- name: operation.back
-- What an operation has moved and is DEAD again, whatever of.
select d.event_id, d."offset", d.event_type, d.error_code, d.last_error, d.dead_at from penstock_deliveries d
 where d.operation = :id and d.state = 'DEAD' limit :limit;

-- name: operation.lock
select * from penstock_operations where id = :id;

-- name: operation.page
-- The newest first; below an id, for the next page.
select * from penstock_operations
 where (:before is null or id < :before) and (:state is null or state = :state)
   and {{of_group()}}
 order by id desc limit :limit;

-- name: operation.due
-- One whose time has come, or was set by a clock that was wrong.
select id from penstock_operations
 where state = 'running' and (next_at <= :now or next_at > :latest)
   and (expires_at is null or expires_at <= :now or expires_at > :latest or held_by = :me)
 order by next_at limit 1;

-- name: operation.take
-- Whoever held it before may not move anything any more.
update penstock_operations set token = token + 1, held_by = :me, expires_at = :expires_at
 where id = :id and state = 'running' and (next_at <= :now or next_at > :latest)
   and (expires_at is null or expires_at <= :now or expires_at > :latest or held_by = :me)
returning token;

-- name: operation.write
update penstock_operations
   set state = :state, phase = :phase, note = :note, moved_upto = :moved_upto, moved = :moved,
       returned = :returned, canaries = :canaries, canaries_ended = :canaries_ended, rate_at = :rate_at,
       next_at = :next_at, expires_at = :expires_at, started_at = :started_at, ended_at = :ended_at
 where id = :id;

-- name: operation.leave
update penstock_operations set expires_at = null where id = :id and token = :token;

-- name: operation.put_off
-- A step went wrong: others come first.
update penstock_operations set note = :note, next_at = :next_at, expires_at = null where id = :id and token = :token;

-- name: operation.canaries
-- How many of the canaries are still on their way, and how many of those wait behind a key that has halted.
select count(*) as waiting,
       count(*) filter (where d.state = 'PENDING' and :halts and exists (
         select 1 from penstock_deliveries h
          where h.group_id = :group_id and h.bucket = d.bucket and h.ordering_key = d.ordering_key
            and h."offset" < d."offset" and {{halting(h.)}})) as held
  from penstock_deliveries d
 where d.group_id = :group_id and d."offset" in (select value from json_each(:offsets)) and d.state in ('PENDING', 'CLAIMED');

-- name: operation.returned
-- What an operation has moved and is DEAD again: with the fingerprint that it had, or, if it had succeeded, with any.
select count(*) as deliveries from (
  select 1 from penstock_deliveries d
   where d.operation = :id and d.state = 'DEAD' and d.error_code is not 'killed'
     and (:any_error or exists (
           select 1 from penstock_attempt_log a
            where a.group_id = d.group_id and a."offset" = d."offset" and a.outcome = 'redriven'
              and a.ended_at >= :since and a.fingerprint is d.fingerprint))
   limit :most) back;
