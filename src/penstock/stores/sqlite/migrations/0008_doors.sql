-- What may be stored as an event, whoever stores it: nothing that a reader could not read. A table's checks cannot be
-- changed here, so triggers hold these; what is stored already stays, and readers cope with it.

-- Times that a client can hold: the years 1 to 9999.
create trigger if not exists penstock_events_times before insert on penstock_events
when new.available_at not between -62135596800000000 and 253402300799999999
  or new.created_at not between -62135596800000000 and 253402300799999999
begin
  select raise(abort, 'penstock: available_at and created_at must lie between the years 1 and 9999');
end;

-- A name may be stored as bytes that are no text: its letters say that it is text.
create trigger if not exists penstock_events_names before insert on penstock_events
when typeof(new.stream) <> 'text' or typeof(new.event_type) <> 'text' or typeof(new.content_type) <> 'text'
  or length(cast(new.stream as blob)) <> length(new.stream)
  or length(cast(new.event_type as blob)) <> length(new.event_type)
  or new.stream glob '*[^-A-Za-z0-9._:]*' or new.event_type glob '*[^-A-Za-z0-9._:]*'
begin
  select raise(abort, 'penstock: stream and event_type must be names of letters, digits and . _ : -');
end;
create trigger if not exists penstock_events_keys before insert on penstock_events
when (new.ordering_key is not null and (typeof(new.ordering_key) <> 'text'
                                        or length(cast(new.ordering_key as blob)) not between 1 and 512))
  or (new.partition_key is not null and (typeof(new.partition_key) <> 'text'
                                         or length(cast(new.partition_key as blob)) not between 1 and 512))
begin
  select raise(abort, 'penstock: a key must be text of 1 to 512 bytes');
end;
create trigger if not exists penstock_events_headers before insert on penstock_events
when json_valid(new.headers)
begin
  select raise(abort, 'penstock: headers must be an object of text values of at most 16 KiB')
   where json_type(new.headers) <> 'object' or length(cast(new.headers as blob)) > 16384
      or exists (select 1 from json_each(new.headers) h where h.type <> 'text');
end;
create trigger if not exists penstock_events_metadata before insert on penstock_events
when json_valid(new.metadata)
begin
  select raise(abort, 'penstock: metadata must be an object of at most 1 MiB')
   where json_type(new.metadata) <> 'object' or length(cast(new.metadata as blob)) > 1048576;
end;
