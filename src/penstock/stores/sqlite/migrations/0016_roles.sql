-- SQLite has no roles: whoever may write the file may do what the triggers allow.
select 1;
