-- name: group.pause
update penstock.groups set paused = %(paused)s, pause_reason = %(reason)s where group_id = %(group_id)s;

-- name: group.policy
update penstock.groups
   set lease_seconds = %(lease_seconds)s, max_attempts = %(max_attempts)s, base_seconds = %(base_seconds)s,
       factor = %(factor)s, cap_seconds = %(cap_seconds)s, jitter = %(jitter)s, max_age_seconds = %(max_age_seconds)s, on_dead = %(on_dead)s,
       max_in_flight = %(max_in_flight)s, rate_per_second = %(rate_per_second)s
 where group_id = %(group_id)s;

-- name: group.delete
select penstock.remove_group(%(group_id)s);

-- name: group.open_lease
select id from penstock.open_lease where group_id = %(group_id)s limit 1;
