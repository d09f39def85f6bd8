-- name: horizon.last
-- One writer at a time: the order of commits is the order of offsets, and the last number given is the horizon.
select coalesce((select seq from sqlite_sequence where name = 'penstock_events'), 0) as last;

-- name: horizon.note
-- A file has no standby.
select :upto where false;
