-- Which event a staged event was made of, so that the rows of a failed one are dropped.
alter table penstock_staged add column source_offset integer;
