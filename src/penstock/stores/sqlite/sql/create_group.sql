-- name: group.create
insert into penstock_groups (stream, group_name, ordering, keyed, lanes, starts, floor, on_dead, lease_seconds, max_attempts,
                             base_seconds, factor, cap_seconds, jitter, max_age_seconds, max_in_flight, rate_per_second, created_at)
values (:stream, :group_name, :ordering, :keyed, :lanes, :starts, :floor, :on_dead, :lease_seconds, :max_attempts,
        :base_seconds, :factor, :cap_seconds, :jitter, :max_age_seconds, :max_in_flight, :rate_per_second, :now)
on conflict (stream, group_name) do nothing
returning group_id;
