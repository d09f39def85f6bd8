-- Indexes for pages that look at the log.

-- What was done to a group, the newest first.
create index if not exists penstock_audit_group on penstock_audit (stream, group_name, id);
