-- name: audit.add
insert into penstock.audit (at, by, action, stream, group_name, count, detail)
values (%(now)s, %(by)s, %(action)s, %(stream)s, %(group_name)s, %(count)s, %(detail)s::jsonb);

-- name: audit.page
-- Operator actions, the newest first.
select id, at as happened_at, by, action, stream, group_name, count, detail::text as detail from penstock.audit
 where id < %(before)s and (%(stream)s::text is null or stream = %(stream)s)
   and (%(group_name)s::text is null or group_name = %(group_name)s)
 order by id desc limit %(limit)s;
