-- The law: what no client, this library included, can make the database do. It guards against mistakes, not against
-- the owner of the file. A RAISE needs a literal text, so every case is spelled out.

-- Events: appended, never rewritten, and the database alone gives the number ("offset" is -1 where none was given).
create trigger if not exists penstock_events_number before insert on penstock_events when new."offset" <> -1
begin
  select raise(abort, 'penstock: the offset of an event is given by the database');
end;
create trigger if not exists penstock_events_update before update on penstock_events
begin
  select raise(abort, 'penstock: UPDATE of events is refused: it is append-only');
end;
create trigger if not exists penstock_events_delete before delete on penstock_events
when not exists (select 1 from penstock_maintenance)
begin
  select raise(abort, 'penstock: DELETE of events is refused: it is append-only');
end;

-- INSERT OR REPLACE removes a row without a DELETE trigger. The first trigger notes an id that is taken; if the insert
-- goes through all the same, the second undoes it.
create table if not exists penstock_taken (event_id text not null);
create trigger if not exists penstock_events_taken before insert on penstock_events
when exists (select 1 from penstock_events e where e.event_id = new.event_id)
begin
  delete from penstock_taken;
  insert into penstock_taken (event_id) values (new.event_id);
end;
create trigger if not exists penstock_events_replaced after insert on penstock_events
when exists (select 1 from penstock_taken t where t.event_id = new.event_id)
begin
  select raise(abort, 'penstock: REPLACE of events is refused: it is append-only');
end;

-- A lease says for ever what it contains; it ends once.
create trigger if not exists penstock_leases_delete before delete on penstock_leases
when not exists (select 1 from penstock_maintenance)
begin
  select raise(abort, 'penstock: DELETE of leases is refused: it is append-only');
end;
create trigger if not exists penstock_leases_replace before insert on penstock_leases
when exists (select 1 from penstock_leases l where l.id = new.id)
begin
  select raise(abort, 'penstock: REPLACE of leases is refused: it is append-only');
end;
create trigger if not exists penstock_leases_keep before update on penstock_leases
begin
  select raise(abort, 'penstock: a lease that has ended cannot change') where old.outcome is not null;
  select raise(abort, 'penstock: what a lease contains cannot change')
   where old.id is not new.id or old.group_id is not new.group_id or old.lane is not new.lane
      or old.lanes is not new.lanes or old.binding is not new.binding or old.token is not new.token
      or old.claimed_by is not new.claimed_by or old.claimed_at is not new.claimed_at
      or old.attempts is not new.attempts or old.members is not new.members or old.low is not new.low
      or old.high is not new.high or old.holes is not new.holes or old.offsets is not new.offsets
      or old.fresh is not new.fresh;
end;

-- Exactly six transitions. The self-pairs are refused, too, which is why this looks at UPDATE OF state.
create trigger if not exists penstock_deliveries_transition before update of state on penstock_deliveries
when (old.state, new.state) not in (values ('PENDING', 'CLAIMED'), ('CLAIMED', 'PUBLISHED'), ('CLAIMED', 'PENDING'),
                                           ('CLAIMED', 'DEAD'), ('PUBLISHED', 'PENDING'), ('DEAD', 'PENDING'))
begin
  select case old.state || new.state
    when 'PENDINGPENDING' then raise(abort, 'penstock: PENDING -> PENDING is not a transition of a delivery')
    when 'PENDINGPUBLISHED' then raise(abort, 'penstock: PENDING -> PUBLISHED is not a transition of a delivery')
    when 'PENDINGDEAD' then raise(abort, 'penstock: PENDING -> DEAD is not a transition of a delivery')
    when 'CLAIMEDCLAIMED' then raise(abort, 'penstock: CLAIMED -> CLAIMED is not a transition of a delivery')
    when 'PUBLISHEDPUBLISHED' then raise(abort, 'penstock: PUBLISHED -> PUBLISHED is not a transition of a delivery')
    when 'PUBLISHEDCLAIMED' then raise(abort, 'penstock: PUBLISHED -> CLAIMED is not a transition of a delivery')
    when 'PUBLISHEDDEAD' then raise(abort, 'penstock: PUBLISHED -> DEAD is not a transition of a delivery')
    when 'DEADDEAD' then raise(abort, 'penstock: DEAD -> DEAD is not a transition of a delivery')
    when 'DEADCLAIMED' then raise(abort, 'penstock: DEAD -> CLAIMED is not a transition of a delivery')
    when 'DEADPUBLISHED' then raise(abort, 'penstock: DEAD -> PUBLISHED is not a transition of a delivery')
    else raise(abort, 'penstock: this is not a transition of a delivery') end;
end;
create trigger if not exists penstock_deliveries_keep before update on penstock_deliveries
begin
  select raise(abort, 'penstock: the identity of a delivery cannot change')
   where old.group_id is not new.group_id or old."offset" is not new."offset" or old.stream is not new.stream
      or old.group_name is not new.group_name or old.event_id is not new.event_id
      or old.event_type is not new.event_type or old.ordering_key is not new.ordering_key
      or old.bucket is not new.bucket;
  select raise(abort, 'penstock: attempts never decrease within a lifecycle')
   where new.attempts < old.attempts and old.state not in ('PUBLISHED', 'DEAD');
end;
create trigger if not exists penstock_deliveries_delete before delete on penstock_deliveries
when not exists (select 1 from penstock_maintenance)
begin
  select raise(abort, 'penstock: DELETE of deliveries is refused: it is append-only');
end;
create trigger if not exists penstock_deliveries_replace before insert on penstock_deliveries
when exists (select 1 from penstock_deliveries d where d.group_id = new.group_id and d."offset" = new."offset")
begin
  select raise(abort, 'penstock: REPLACE of deliveries is refused: the delivery has a row');
end;

-- A row is born PENDING, or as the outcome of an open lease that contains its offset.
create trigger if not exists penstock_deliveries_born before insert on penstock_deliveries
when new.state <> 'PENDING' and (new.state not in ('DEAD', 'PUBLISHED') or not exists (
       select 1 from penstock_leases l
        where l.id = new.lease and l.group_id = new.group_id and l.outcome is null and l.offsets is null
          and new."offset" > l.low and new."offset" <= l.high
          and new."offset" not in (select value from json_each(l.holes))
          and new.bucket * l.lanes / 256 = l.lane))
begin
  select case new.state
    when 'CLAIMED' then raise(abort, 'penstock: a delivery cannot be born CLAIMED outside its lease')
    when 'PUBLISHED' then raise(abort, 'penstock: a delivery cannot be born PUBLISHED outside its lease')
    when 'DEAD' then raise(abort, 'penstock: a delivery cannot be born DEAD outside its lease')
    else raise(abort, 'penstock: a delivery cannot be born in this state') end;
end;

-- A BEFORE trigger cannot set columns here, so what follows from the state is set right after it.
create trigger if not exists penstock_deliveries_follow after update of state, dead_at on penstock_deliveries
when (new.state = 'DEAD') <> (new.dead_at is not null) or (new.state <> 'CLAIMED' and new.lease is not null)
begin
  update penstock_deliveries
     set lease = case when new.state = 'CLAIMED' then lease end,
         dead_at = case when new.state = 'DEAD' then coalesce(
           dead_at, cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)) end
   where group_id = new.group_id and "offset" = new."offset";
end;
create trigger if not exists penstock_deliveries_begin after insert on penstock_deliveries
when (new.state = 'DEAD') <> (new.dead_at is not null) or (new.state <> 'CLAIMED' and new.lease is not null)
begin
  update penstock_deliveries
     set lease = null,
         dead_at = case when new.state = 'DEAD' then coalesce(
           dead_at, cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)) end
   where group_id = new.group_id and "offset" = new."offset";
end;
