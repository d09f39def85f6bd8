-- name: audit.add
insert into penstock_audit (at, "by", action, stream, group_name, "count", detail)
values (:now, :by, :action, :stream, :group_name, :count, :detail);
