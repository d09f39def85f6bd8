-- name: group.bind
insert into penstock.bindings (group_id, from_offset, types, type_regex, headers, created_at)
values (%(group_id)s, %(from_offset)s, %(types)s::text[], %(type_regex)s, %(headers)s::jsonb, %(now)s)
returning id;

-- name: group.bind_glob
-- Only SQLite needs globs: here the regular expression does it.
select 1;
