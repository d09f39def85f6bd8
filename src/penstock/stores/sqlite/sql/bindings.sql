-- name: group.bind
insert into penstock_bindings (group_id, from_offset, types, type_regex, headers, created_at)
values (:group_id, :from_offset, :types, :type_regex, :headers, :now)
returning id;

-- name: group.bind_glob
insert into penstock_binding_types (binding, "glob", min_dots, max_dots)
values (:binding, :glob, :min_dots, :max_dots) on conflict do nothing;
