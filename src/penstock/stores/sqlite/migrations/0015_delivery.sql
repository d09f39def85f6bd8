-- SQLite takes the tables of a CROSS JOIN in the order in which they stand: its view is written from the right side.
select 1;
