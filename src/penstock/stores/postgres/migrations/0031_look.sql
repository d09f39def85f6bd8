-- Indexes for pages that look at the log.

-- What was done to a group, the newest first.
create index if not exists audit_group on penstock.audit (stream, group_name, id);
