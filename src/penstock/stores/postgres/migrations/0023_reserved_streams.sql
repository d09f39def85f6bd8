-- Streams whose names begin with `jobs:` hold jobs, and only jobs.

-- Whoever stores an event there stores a job: the stream is `jobs:<queue>:<priority>:<type>`, and its type is that type.
alter table penstock.events drop constraint if exists events_reserved_stream;
alter table penstock.events add constraint events_reserved_stream check (
  stream not like 'jobs:%'
  or (stream ~ '^jobs:[^:]+:[0-9]:' and event_type = substr(stream, 9 + length(split_part(stream, ':', 2))))) not valid;

-- The outbox of every language. What it refuses has the code PS003 and says what is wrong with which argument. (As before, but
-- for streams of jobs.)
create or replace function penstock.append(
  stream text, event_type text, payload bytea, ordering_key text default null, headers jsonb default null,
  metadata jsonb default null, event_id uuid default null, partition_key text default null,
  available_at timestamptz default null, content_type text default 'application/json',
  out "offset" bigint, out id uuid, out duplicate boolean)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  name_rule constant text := '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
  known     record;
begin
  if stream is null or stream !~ name_rule or event_type is null or event_type !~ name_rule then
    raise exception 'penstock: stream and event_type must be names of letters, digits and . _ : -' using errcode = 'PS003';
  end if;
  if stream like 'jobs:%' then
    raise exception 'penstock: reserved_stream: the stream "%" is one of jobs', stream using errcode = 'PS003',
      hint = 'Choose another name, or submit a job with log.submit(type, payload).';
  end if;
  if payload is null or octet_length(payload) > 1048576 then
    raise exception 'penstock: payload must be given and have at most 1 MiB' using errcode = 'PS003';
  end if;
  if octet_length(ordering_key) not between 1 and 512 or octet_length(partition_key) not between 1 and 512 then
    raise exception 'penstock: a key must have 1 to 512 bytes' using errcode = 'PS003';
  end if;
  if jsonb_typeof(headers) <> 'object' or octet_length(headers::text) > 8192
     or headers @? 'strict $.* ? (@.type() != "string")' then
    raise exception 'penstock: headers must be an object of text values of at most 8 KiB' using errcode = 'PS003';
  end if;
  if jsonb_typeof(metadata) <> 'object' or octet_length(metadata::text) > 8192 then
    raise exception 'penstock: metadata must be an object of at most 8 KiB' using errcode = 'PS003';
  end if;
  if available_at not between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00' then
    raise exception 'penstock: available_at must lie between the years 1 and 9999' using errcode = 'PS003',
      hint = 'Infinity is no time: an event that must wait for a word belongs into another stream until then.';
  end if;
  if content_type !~ '^[ -~]{1,128}$' then
    raise exception 'penstock: content_type must be printable ASCII of at most 128 characters' using errcode = 'PS003';
  end if;
  id := coalesce(event_id, gen_random_uuid());
  insert into penstock.events as e (stream, event_id, event_type, payload, content_type, headers, metadata,
                                    partition_key, ordering_key, bucket, available_at)
  values (stream, id, event_type, payload, coalesce(content_type, 'application/json'), nullif(headers, '{}'),
          nullif(metadata, '{}'), partition_key, ordering_key,
          get_byte(sha256(convert_to(ordering_key, 'UTF8')), 0), available_at)
  on conflict do nothing
  returning e."offset" into "offset";
  duplicate := "offset" is null;
  if duplicate then
    select e.* into known from penstock.events e where e.event_id = id;
    if (known.stream, known.event_type, known.payload) is distinct from (stream, event_type, payload) then
      raise exception 'penstock: event id % is taken by another event', id using errcode = 'PS004';
    end if;
    "offset" := known."offset";
  end if;
end $$;
