-- Rows that a table may refuse are tried in parts: a range of their events.
create index if not exists penstock_staged_rows_event on penstock_staged_rows (attempt, event_offset);
