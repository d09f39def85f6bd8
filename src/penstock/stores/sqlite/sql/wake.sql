-- name: wake.look
-- Where the log stands: what idle workers look at.
select coalesce((select seq from sqlite_sequence where name = 'penstock_events'), 0) as last,
       coalesce((select max(id) from penstock_audit), 0) as actions,
       coalesce((select max(id) from penstock_returned), 0) as returned;
