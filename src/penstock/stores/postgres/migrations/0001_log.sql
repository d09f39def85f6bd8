-- The log, its groups and their lifecycle.

create table if not exists penstock.events (
  "offset"      bigint generated always as identity (sequence name penstock.events_offset_seq cache 1) primary key,
  stream        text not null check (length(stream) between 1 and 128),
  event_id      uuid not null unique,
  event_type    text not null check (length(event_type) between 1 and 128),
  payload       bytea not null check (octet_length(payload) <= 1048576),
  content_type  text not null default 'application/json',
  headers       jsonb,
  metadata      jsonb,
  partition_key text,
  ordering_key  text,
  bucket        smallint,
  available_at  timestamptz,
  created_at    timestamptz not null default clock_timestamp()
);
-- With the bucket in it, a lane is found and counted without a visit to the events of other lanes. (The expression is
-- what is searched; the column lets the index alone answer.)
create index if not exists events_stream on penstock.events (stream, "offset", (coalesce(bucket, mod("offset", 256))))
  include (bucket);
-- Without statistics every stream counts as a small part of the log, so that no plan reads a stream through the primary
-- key and every other stream's events on its way.
alter table penstock.events alter column stream set statistics 0;
create index if not exists events_delayed on penstock.events (stream, "offset") include (available_at)
  where available_at is not null;
create index if not exists events_created on penstock.events using brin (created_at) with (pages_per_range = 32);

create table if not exists penstock.groups (
  group_id        integer generated always as identity primary key,
  stream          text not null,
  group_name      text not null,
  ordering        text check (ordering = 'key'),
  keyed           boolean not null,
  lanes           smallint not null check (lanes between 1 and 256),
  starts          bigint[] not null,
  floor           bigint not null,
  matched_before  bigint not null default 0,
  on_dead         text not null check (on_dead in ('continue', 'halt')),
  lease_seconds   double precision not null check (lease_seconds > 0),
  max_attempts    integer not null check (max_attempts > 0),
  base_seconds    double precision not null,
  factor          double precision not null,
  cap_seconds     double precision not null,
  jitter          double precision not null,
  max_age_seconds double precision,
  rewinds         integer not null default 0,
  paused          boolean not null default false,
  pause_reason    text,
  created_at      timestamptz not null default clock_timestamp(),
  unique (stream, group_name)
);

create table if not exists penstock.bindings (
  id          bigint generated always as identity primary key,
  group_id    integer not null,
  from_offset bigint not null,
  types       text[],
  type_regex  text,
  headers     jsonb,
  created_at  timestamptz not null default clock_timestamp()
);
create index if not exists bindings_group on penstock.bindings (group_id, from_offset);

create table if not exists penstock.leases (
  id          bigint generated always as identity primary key,
  group_id    integer not null,
  lane        smallint not null,
  lanes       smallint not null,
  binding     bigint not null,
  token       bigint not null,
  claimed_by  text not null,
  claimed_at  timestamptz not null,
  expires_at  timestamptz not null,
  attempts    integer not null,
  replay      integer not null default 0,
  members     integer not null,
  low         bigint,
  high        bigint,
  holes       bigint[] not null default '{}',
  offsets     bigint[],
  fresh       boolean not null,
  total       bigint,
  open_before bigint[] not null default '{}',
  outcome     text check (outcome in ('settled', 'released', 'expired', 'rewound')),
  upto        bigint,
  digest      bytea,
  answer      integer[],
  ended_at    timestamptz,
  check ((offsets is null) = (low is not null and high is not null)),
  check ((outcome is null) = (ended_at is null))
);
create index if not exists leases_latest on penstock.leases (group_id, lanes, lane, id);
create index if not exists leases_cursor on penstock.leases (group_id, lanes, lane, high) where fresh;
-- No index on what is open: ended leases would fill it with dead entries for as long as anybody holds an old snapshot.
-- And no statistics, so that no plan looks for the newest lease of one group among those of the others.
alter table penstock.leases alter column group_id set statistics 0;
alter table penstock.leases alter column lanes set statistics 0;
alter table penstock.leases alter column lane set statistics 0;
create index if not exists leases_range on penstock.leases using gist (int8range(low, high, '(]')) where offsets is null;

create table if not exists penstock.deliveries (
  group_id     integer not null,
  "offset"     bigint not null,
  stream       text not null,
  group_name   text not null,
  event_id     uuid not null,
  event_type   text not null,
  ordering_key text,
  bucket       smallint not null,
  in_order     boolean not null default false,
  state        text not null check (state in ('PENDING', 'CLAIMED', 'PUBLISHED', 'DEAD')),
  attempts     integer not null default 0,
  failures     integer not null default 0,
  replays      integer not null default 0,
  available_at timestamptz not null default clock_timestamp(),
  claimed_at   timestamptz,
  claimed_by   text,
  lease        bigint,
  last_error   text,
  error_code   text,
  reason       text,
  published_at timestamptz,
  dead_at      timestamptz,
  updated_at   timestamptz not null default clock_timestamp(),
  primary key (group_id, "offset"),
  constraint claimed_at_iff_claimed check ((state = 'CLAIMED') = (claimed_at is not null)),
  constraint claimed_by_iff_claimed check ((state = 'CLAIMED') = (claimed_by is not null)),
  constraint published_at_iff_published check ((state = 'PUBLISHED') = (published_at is not null)),
  constraint dead_at_iff_dead check ((state = 'DEAD') = (dead_at is not null))
) with (fillfactor = 80);
create index if not exists deliveries_due on penstock.deliveries (group_id, available_at, "offset") where state = 'PENDING';
-- Keys matter where a group is ordered; every version of a row has an entry in every index that holds it.
create index if not exists deliveries_key on penstock.deliveries (group_id, bucket, ordering_key, "offset")
 where in_order and state <> 'PUBLISHED';
create index if not exists deliveries_buried on penstock.deliveries (group_id, "offset") where state = 'DEAD';
create index if not exists deliveries_dead on penstock.deliveries (group_name, updated_at desc) where state = 'DEAD';

create table if not exists penstock.returned (
  id           bigint generated always as identity primary key,
  group_id     integer not null,
  lane         smallint not null,
  lanes        smallint not null,
  binding      bigint not null,
  low          bigint not null,
  high         bigint not null,
  members      integer not null,
  attempts     integer not null,
  replay       integer not null default 0,
  available_at timestamptz not null,
  reason       text not null,
  last_error   text,
  check (low < high)
);
create index if not exists returned_low on penstock.returned (group_id, lanes, lane, low);

create table if not exists penstock.attempt_log (
  id         bigint generated always as identity,
  group_id   integer not null,
  "offset"   bigint not null,
  attempt    integer not null,
  failures   integer not null,
  replays    integer not null default 0,
  outcome    text not null,
  error      text,
  error_code text,
  claimed_by text,
  claimed_at timestamptz,
  ended_at   timestamptz not null,
  lease      bigint,
  primary key (group_id, "offset", id)
);
create index if not exists attempt_log_deaths on penstock.attempt_log (group_id, id)
  where error_code in ('process_died', 'out_of_memory', 'lease_expired');

create table if not exists penstock.state (
  group_id   integer not null,
  key        text not null,
  name       text not null,
  value      text not null,
  version    bigint not null,
  expires_at timestamptz,
  updated_at timestamptz not null,
  primary key (group_id, key, name)
);

create table if not exists penstock.audit (
  id         bigint generated always as identity primary key,
  at         timestamptz not null default clock_timestamp(),
  by         text not null,
  action     text not null,
  stream     text,
  group_name text,
  count      bigint,
  detail     jsonb
);

create table if not exists penstock.tally (
  stream     text not null,
  event_type text not null,
  upto       bigint not null,
  events     bigint not null,
  primary key (upto, stream, event_type)
);
create table if not exists penstock.pruned (
  stream text primary key,
  upto   bigint not null
);
