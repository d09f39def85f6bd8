-- name: append.new
-- In bulk, ids of our own making.
insert into penstock_events ({{event_fields}}, created_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: append.many
-- Ids that may be known already: what is new is stored, the rest is reported.
insert into penstock_events ({{event_fields}}, created_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (event_id) do nothing;

-- name: append.known
select event_id, stream, event_type, payload from penstock_events where event_id in (select value from json_each(:ids));
