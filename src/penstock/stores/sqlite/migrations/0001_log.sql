-- The log, its groups and their lifecycle. Times are microseconds since 1970-01-01 UTC; arrays are JSON.

-- AUTOINCREMENT: an offset is never given twice, not even after the newest events were pruned.
create table if not exists penstock_events (
  "offset"      integer primary key autoincrement check ("offset" > 0),
  stream        text not null check (length(stream) between 1 and 128),
  event_id      text not null unique check (length(event_id) = 36 and event_id = lower(event_id)),
  event_type    text not null check (length(event_type) between 1 and 128),
  payload       blob not null check (typeof(payload) = 'blob' and length(payload) <= 1048576),
  content_type  text not null default 'application/json',
  headers       text check (headers is null or json_valid(headers)),
  metadata      text check (metadata is null or json_valid(metadata)),
  partition_key text,
  ordering_key  text,
  bucket        integer check (bucket between 0 and 255),
  available_at  integer check (typeof(available_at) in ('integer', 'null')),
  created_at    integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer))
                check (typeof(created_at) = 'integer')
);
-- With the bucket in it, a claim of a lane never visits the events themselves.
create index if not exists penstock_events_stream on penstock_events (stream, "offset", bucket);
create index if not exists penstock_events_delayed on penstock_events (stream, "offset", available_at)
  where available_at is not null;
create index if not exists penstock_events_created on penstock_events (stream, created_at);

create table if not exists penstock_groups (
  group_id        integer primary key autoincrement,
  stream          text not null,
  group_name      text not null,
  ordering        text check (ordering = 'key'),
  keyed           integer not null check (keyed in (0, 1)),
  lanes           integer not null check (lanes between 1 and 256),
  starts          text not null check (json_array_length(starts) = lanes),
  floor           integer not null,
  matched_before  integer not null default 0,
  on_dead         text not null check (on_dead in ('continue', 'halt')),
  lease_seconds   real not null check (lease_seconds > 0),
  max_attempts    integer not null check (max_attempts > 0),
  base_seconds    real not null,
  factor          real not null,
  cap_seconds     real not null,
  jitter          real not null,
  max_age_seconds real,
  rewinds         integer not null default 0,
  paused          integer not null default 0 check (paused in (0, 1)),
  pause_reason    text,
  created_at      integer not null,
  unique (stream, group_name)
);

create table if not exists penstock_bindings (
  id          integer primary key autoincrement,
  group_id    integer not null,
  from_offset integer not null,
  types       text,
  type_regex  text,
  headers     text,
  created_at  integer not null
);
create index if not exists penstock_bindings_group on penstock_bindings (group_id, from_offset);

-- The patterns of a binding as SQLite can match them: a glob, and how many dots the type must have.
create table if not exists penstock_binding_types (
  binding  integer not null,
  "glob"   text not null,
  min_dots integer not null,
  max_dots integer not null,
  primary key (binding, "glob", min_dots, max_dots)
) without rowid;

create table if not exists penstock_leases (
  id          integer primary key autoincrement,
  group_id    integer not null,
  lane        integer not null,
  lanes       integer not null,
  binding     integer not null,
  token       integer not null,
  claimed_by  text not null,
  claimed_at  integer not null,
  expires_at  integer not null,
  attempts    integer not null,
  replay      integer not null default 0,
  members     integer not null,
  low         integer,
  high        integer,
  holes       text not null default '[]',
  offsets     text,
  fresh       integer not null check (fresh in (0, 1)),
  total       integer,
  open_before text not null default '[]',
  outcome     text check (outcome in ('settled', 'released', 'expired', 'rewound')),
  upto        integer,
  digest      blob,
  answer      text,
  ended_at    integer,
  check ((offsets is null) = (low is not null and high is not null)),
  check ((outcome is null) = (ended_at is null))
);
create index if not exists penstock_leases_latest on penstock_leases (group_id, lanes, lane);
create index if not exists penstock_leases_cursor on penstock_leases (group_id, lanes, lane, high) where fresh = 1;
create index if not exists penstock_leases_open on penstock_leases (group_id) where outcome is null;
-- Which ranges contain an offset. A fresh lease starts at its lane's cursor and so overlaps no earlier one: whether a
-- newer lease contains an event is a question to the few that are not fresh.
create index if not exists penstock_leases_range on penstock_leases (group_id, high, low) where offsets is null;
create index if not exists penstock_leases_again on penstock_leases (group_id, high, low)
  where offsets is null and fresh = 0;

-- That dead_at is set iff DEAD is kept by a trigger that fills and clears it (see 0002_law.sql).
create table if not exists penstock_deliveries (
  group_id     integer not null,
  "offset"     integer not null,
  stream       text not null,
  group_name   text not null,
  event_id     text not null,
  event_type   text not null,
  ordering_key text,
  bucket       integer not null,
  state        text not null check (state in ('PENDING', 'CLAIMED', 'PUBLISHED', 'DEAD')),
  attempts     integer not null default 0,
  failures     integer not null default 0,
  replays      integer not null default 0,
  available_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)),
  claimed_at   integer,
  claimed_by   text,
  lease        integer,
  last_error   text,
  error_code   text,
  reason       text,
  published_at integer,
  dead_at      integer,
  updated_at   integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)),
  primary key (group_id, "offset"),
  constraint claimed_at_iff_claimed check ((state = 'CLAIMED') = (claimed_at is not null)),
  constraint claimed_by_iff_claimed check ((state = 'CLAIMED') = (claimed_by is not null)),
  constraint published_at_iff_published check ((state = 'PUBLISHED') = (published_at is not null))
);
create index if not exists penstock_deliveries_due on penstock_deliveries (group_id, available_at, "offset")
  where state = 'PENDING';
create index if not exists penstock_deliveries_key on penstock_deliveries (group_id, bucket, ordering_key, "offset")
  where state <> 'PUBLISHED';
create index if not exists penstock_deliveries_state on penstock_deliveries (group_id, state, "offset");
create index if not exists penstock_deliveries_dead on penstock_deliveries (group_name, updated_at desc)
  where state = 'DEAD';
create index if not exists penstock_deliveries_offset on penstock_deliveries ("offset");

create table if not exists penstock_returned (
  id           integer primary key autoincrement,
  group_id     integer not null,
  lane         integer not null,
  lanes        integer not null,
  binding      integer not null,
  low          integer not null,
  high         integer not null,
  members      integer not null,
  attempts     integer not null,
  replay       integer not null default 0,
  available_at integer not null,
  reason       text not null,
  last_error   text,
  check (low < high)
);
create index if not exists penstock_returned_low on penstock_returned (group_id, lanes, lane, low);

create table if not exists penstock_attempt_log (
  id         integer primary key autoincrement,
  group_id   integer not null,
  "offset"   integer not null,
  attempt    integer not null,
  failures   integer not null,
  replays    integer not null default 0,
  outcome    text not null,
  error      text,
  error_code text,
  claimed_by text,
  claimed_at integer,
  ended_at   integer not null,
  lease      integer
);
create index if not exists penstock_attempt_log_event on penstock_attempt_log (group_id, "offset");

create table if not exists penstock_state (
  group_id   integer not null,
  "key"      text not null,
  name       text not null,
  value      text not null,
  version    integer not null,
  expires_at integer,
  updated_at integer not null,
  primary key (group_id, "key", name)
) without rowid;

create table if not exists penstock_audit (
  id         integer primary key autoincrement,
  at         integer not null,
  "by"       text not null,
  action     text not null,
  stream     text,
  group_name text,
  "count"    integer,
  detail     text
);

create table if not exists penstock_tally (
  stream     text not null,
  event_type text not null,
  upto       integer not null,
  events     integer not null,
  primary key (upto, stream, event_type)
) without rowid;
create table if not exists penstock_pruned (
  stream text primary key,
  upto   integer not null
) without rowid;

-- While its row exists, rows may be deleted. Prune, rewind and erase write it and remove it in one transaction.
create table if not exists penstock_maintenance (
  one     integer primary key check (one = 1),
  removed integer not null default 0
);
