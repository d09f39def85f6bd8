-- Claimed events that somebody wants to end, by group: their holders are told with the next heartbeat. A request ends with
-- its delivery; what comes back unfinished is given up.
create table if not exists penstock_event_cancels (
  group_id integer not null,
  "offset" integer not null,
  reason   text not null,
  by       text not null,
  asked_at integer not null,
  primary key (group_id, "offset")
) without rowid;
