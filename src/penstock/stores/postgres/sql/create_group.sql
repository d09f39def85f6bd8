-- name: group.create
insert into penstock.groups (stream, group_name, ordering, keyed, lanes, starts, floor, on_dead, lease_seconds, max_attempts,
                             base_seconds, factor, cap_seconds, jitter, max_age_seconds, max_in_flight, rate_per_second, created_at)
values (%(stream)s, %(group_name)s, %(ordering)s, %(keyed)s, %(lanes)s, %(starts)s::bigint[], %(floor)s, %(on_dead)s,
        %(lease_seconds)s, %(max_attempts)s, %(base_seconds)s, %(factor)s, %(cap_seconds)s, %(jitter)s,
        %(max_age_seconds)s, %(max_in_flight)s, %(rate_per_second)s, %(now)s)
on conflict (stream, group_name) do nothing
returning group_id;
