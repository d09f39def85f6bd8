-- name: wake.look
-- Where the log stands: what idle workers look at. The sequence moves before an event can be seen.
select (select case when is_called then last_value else 0 end from penstock.events_offset_seq) as last,
       coalesce((select max(id) from penstock.audit), 0) as actions,
       coalesce((select max(id) from penstock.returned), 0) as returned;

-- name: wake.listen
-- Only on a connection of its own, and only where the session is ours: see PostgresSight.
select pg_try_advisory_lock_shared({{waiters}}) as held;

-- name: wake.leave
select pg_advisory_unlock_shared({{waiters}}) as held;

-- name: wake.notify
-- Whoever waits holds this lock: if it can be had, nobody waits. A stranger who holds it causes a notification too many.
select case when pg_try_advisory_lock({{waiters}})
            then pg_advisory_unlock({{waiters}})::text
            else pg_notify(%(channel)s, '')::text end as done;
