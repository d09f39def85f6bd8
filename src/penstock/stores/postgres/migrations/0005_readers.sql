-- Streaming readers: which leases were claimed together, under which number. A claim that is asked for again is the same.
create table if not exists penstock.reader_claims (
  reader   text not null,
  claim    bigint not null,
  lease    bigint not null,
  group_id integer not null,
  primary key (reader, claim, lease)
);
