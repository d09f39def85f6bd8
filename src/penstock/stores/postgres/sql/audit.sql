-- name: audit.add
insert into penstock.audit (at, by, action, stream, group_name, count, detail)
values (%(now)s, %(by)s, %(action)s, %(stream)s, %(group_name)s, %(count)s, %(detail)s::jsonb);
