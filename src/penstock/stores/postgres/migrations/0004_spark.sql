-- Writes of Spark: its tasks stage events, and one transaction at the end appends what the successful ones have staged.

create table if not exists penstock.staging_attempts (
  attempt    uuid primary key,
  writer     text not null,
  batch      bigint not null,
  started_at timestamptz not null
);

create table if not exists penstock.staged (
  attempt       uuid not null,
  position      bigint generated always as identity,
  stream        text not null,
  event_id      uuid not null,
  event_type    text not null,
  payload       bytea not null,
  content_type  text not null,
  headers       jsonb,
  metadata      jsonb,
  partition_key text,
  ordering_key  text,
  bucket        smallint,
  available_at  timestamptz,
  primary key (attempt, position)
);

-- The newest batch of every writer: what is not newer is not appended again.
create table if not exists penstock.writes (
  stream       text not null,
  writer       text not null,
  batch        bigint not null,
  events       bigint not null,
  committed_at timestamptz not null default clock_timestamp(),
  primary key (stream, writer)
);
