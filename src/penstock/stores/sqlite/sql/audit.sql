-- name: audit.add
insert into penstock_audit (at, "by", action, stream, group_name, "count", detail)
values (:now, :by, :action, :stream, :group_name, :count, :detail);

-- name: audit.page
-- Operator actions, the newest first.
select id, at as happened_at, "by", action, stream, group_name, "count", detail from penstock_audit
 where id < :before and (:stream is null or stream = :stream) and (:group_name is null or group_name = :group_name)
 order by id desc limit :limit;
