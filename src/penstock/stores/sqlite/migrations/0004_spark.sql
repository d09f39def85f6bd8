-- Writes of Spark: its tasks stage events, and one transaction at the end appends what the successful ones have staged.

create table if not exists penstock_staging_attempts (
  attempt    text primary key,
  writer     text not null,
  batch      integer not null,
  started_at integer not null
);

create table if not exists penstock_staged (
  position      integer primary key,
  attempt       text not null,
  stream        text not null,
  event_id      text not null,
  event_type    text not null,
  payload       blob not null,
  content_type  text not null,
  headers       text,
  metadata      text,
  partition_key text,
  ordering_key  text,
  bucket        integer,
  available_at  integer
);
create index if not exists penstock_staged_attempt on penstock_staged (attempt, position);

-- The newest batch of every writer: what is not newer is not appended again.
create table if not exists penstock_writes (
  stream       text not null,
  writer       text not null,
  batch        integer not null,
  events       integer not null,
  committed_at integer not null,
  primary key (stream, writer)
);
