-- What Spark's tasks stage: which event a staged event was made of, so that the rows of a failed one are dropped; and no
-- write-ahead log for it, for whoever moves it counts it first (after a crash of the server it is empty, and done again).
alter table penstock.staged add column if not exists source_offset bigint;
alter table penstock.staged set unlogged;
alter table penstock.staged_rows set unlogged;
