-- The law, without the gaps that raw SQL found.

-- A row stands here in logs that were opened with a clock of a test's own: times in them are not this machine's.
create table if not exists penstock_test_clock (
  since integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer))
);

-- A bucket belongs to a key. (SQLite cannot compute it; append does.)
create trigger if not exists penstock_events_bucket before insert on penstock_events
when (new.bucket is null) <> (new.ordering_key is null)
begin
  select raise(abort, 'penstock: an event has a bucket if and only if it has an ordering key');
end;

-- A lease is born open.
create trigger if not exists penstock_leases_born before insert on penstock_leases
when new.outcome is not null or new.upto is not null or new.digest is not null or new.answer is not null
  or new.ended_at is not null or new.published is not null or new.failed is not null or new.dead is not null
  or new.released is not null
begin
  select raise(abort, 'penstock: a lease cannot be born with an outcome');
end;

-- A lease says for ever what it contains; it ends once; past its end it is neither settled nor extended.
drop trigger if exists penstock_leases_keep;
create trigger penstock_leases_keep before update on penstock_leases
begin
  select raise(abort, 'penstock: a lease that has ended cannot change') where old.outcome is not null;
  select raise(abort, 'penstock: what a lease contains cannot change')
   where old.id is not new.id or old.group_id is not new.group_id or old.lane is not new.lane
      or old.lanes is not new.lanes or old.binding is not new.binding or old.token is not new.token
      or old.claimed_by is not new.claimed_by or old.claimed_at is not new.claimed_at
      or old.attempts is not new.attempts or old.replay is not new.replay or old.members is not new.members
      or old.low is not new.low or old.high is not new.high or old.holes is not new.holes
      or old.offsets is not new.offsets or old.fresh is not new.fresh or old.total is not new.total
      or old.open_before is not new.open_before;
  select raise(abort, 'penstock: the lease has expired')
   where ((new.outcome = 'settled' and old.members > 0) or new.expires_at > old.expires_at)
     and old.expires_at <= cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)
     and not exists (select 1 from penstock_test_clock);
end;

-- A lease takes nothing with it when it ends: what is not done waits to be claimed again, or has a row. (Asked of the
-- lease's members only where the ranges that came back do not cover it.)
create trigger if not exists penstock_leases_given_back after update of outcome on penstock_leases
when old.outcome is null and new.offsets is null and new.members > 0 and (new.outcome <> 'settled' or new.upto < new.high)
 and new.high - case when new.outcome = 'settled' then max(new.upto, new.low) else new.low end > (
       select coalesce(sum(min(r.high, new.high)
                           - max(r.low, case when new.outcome = 'settled' then max(new.upto, new.low) else new.low end)), 0)
         from penstock_returned r
        where r.group_id = new.group_id and r.lanes = new.lanes and r.lane = new.lane and r.low < new.high
          and r.high > case when new.outcome = 'settled' then max(new.upto, new.low) else new.low end)
begin
  select raise(abort, 'penstock: a lease cannot end: not all that it holds was given back')
   where exists (
         select 1 from penstock_groups g
          cross join penstock_bindings b on b.id = new.binding
          cross join penstock_events e indexed by penstock_events_stream on e.stream = g.stream
          where g.group_id = new.group_id
            and e."offset" > case when new.outcome = 'settled' then max(new.upto, new.low) else new.low end
            and e."offset" <= new.high and coalesce(e.bucket, e."offset" % 256) * new.lanes / 256 = new.lane
            and (b.types is null or exists (
                  select 1 from penstock_binding_types t
                   where t.binding = b.id and e.event_type glob t."glob"
                     and length(e.event_type) - length(replace(e.event_type, '.', '')) between t.min_dots and t.max_dots))
            and (b.headers is null or not exists (
                  select 1 from json_each(b.headers) h
                   where not exists (select 1 from json_each(e.headers) x where x.key = h.key and x.value = h.value)))
            and e."offset" not in (select value from json_each(new.holes))
            and not exists (select 1 from penstock_deliveries d
                             where d.group_id = new.group_id and d."offset" = e."offset")
            and not exists (select 1 from penstock_returned r
                             where r.group_id = new.group_id and r.lanes = new.lanes and r.lane = new.lane
                               and r.low < e."offset" and r.high >= e."offset"));
end;
create trigger if not exists penstock_leases_rows_given_back after update of outcome on penstock_leases
when old.outcome is null and new.offsets is not null
begin
  select raise(abort, 'penstock: a lease cannot end: not all that it holds was given back')
   where exists (select 1 from json_each(new.offsets) o
                   cross join penstock_deliveries d on d.group_id = new.group_id and d."offset" = o.value
                  where d.state = 'CLAIMED' and d.lease = new.id);
end;

-- PUBLISHED and DEAD are written for a row of an open lease that has not expired. Two others may bury: the reaper, and
-- an operator who kills.
create trigger if not exists penstock_deliveries_outcome before update of state on penstock_deliveries
when old.state = 'CLAIMED' and new.state in ('PUBLISHED', 'DEAD')
 and not (old.lease is null and new.state = 'DEAD' and new.error_code is 'killed')
begin
  select raise(abort, 'penstock: a delivery cannot become PUBLISHED or DEAD outside an open lease')
   where not exists (select 1 from penstock_leases l
                      where l.id = old.lease and l.group_id = old.group_id and l.outcome is null
                        and l.offsets is not null);
  select raise(abort, 'penstock: the lease has expired') from penstock_leases l
   where l.id = old.lease
     and l.expires_at <= cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)
     and not (new.state = 'DEAD' and new.error_code is 'lease_expired')
     and not (l.expires_at > new.updated_at and exists (select 1 from penstock_test_clock));
end;

-- A row is born as the outcome of an open lease that contains its offset and that it names, or PENDING where no open
-- lease contains it.
drop trigger if exists penstock_deliveries_born;
create trigger penstock_deliveries_born before insert on penstock_deliveries
when (new.state <> 'PENDING' or new.lease is not null)
 and (new.state not in ('PENDING', 'DEAD', 'PUBLISHED') or not exists (
       select 1 from penstock_leases l
        where l.id = new.lease and l.group_id = new.group_id and l.outcome is null and l.offsets is null
          and new."offset" > l.low and new."offset" <= l.high
          and new."offset" not in (select value from json_each(l.holes))
          and new.bucket * l.lanes / 256 = l.lane
          and (new.state = 'PENDING' or (new.state = 'DEAD' and new.error_code is 'lease_expired')
               or l.expires_at > cast(round((julianday('now') - 2440587.5) * 86400000000.0) as integer)
               or (l.expires_at > new.updated_at and exists (select 1 from penstock_test_clock)))))
begin
  select case new.state
    when 'PENDING' then raise(abort, 'penstock: a delivery cannot be born PENDING outside its lease')
    when 'CLAIMED' then raise(abort, 'penstock: a delivery cannot be born CLAIMED outside its lease')
    when 'PUBLISHED' then raise(abort, 'penstock: a delivery cannot be born PUBLISHED outside its lease')
    when 'DEAD' then raise(abort, 'penstock: a delivery cannot be born DEAD outside its lease')
    else raise(abort, 'penstock: a delivery cannot be born in this state') end;
end;
create trigger if not exists penstock_deliveries_born_pending before insert on penstock_deliveries
when new.state = 'PENDING' and new.lease is null and exists (
       select 1 from penstock_leases l
        where l.group_id = new.group_id and l.outcome is null and l.offsets is null
          and new."offset" > l.low and new."offset" <= l.high and new.bucket * l.lanes / 256 = l.lane
          and new."offset" not in (select value from json_each(l.holes)))
begin
  select raise(abort, 'penstock: a delivery cannot be born PENDING: an open lease contains it');
end;

-- Counts of a life go down only where a new life begins; what was so far stays counted.
drop trigger if exists penstock_deliveries_keep;
create trigger penstock_deliveries_keep before update on penstock_deliveries
begin
  select raise(abort, 'penstock: the identity of a delivery cannot change')
   where old.group_id is not new.group_id or old."offset" is not new."offset" or old.stream is not new.stream
      or old.group_name is not new.group_name or old.event_id is not new.event_id
      or old.event_type is not new.event_type or old.ordering_key is not new.ordering_key
      or old.bucket is not new.bucket;
  select raise(abort, 'penstock: attempts and failures never decrease within a lifecycle')
   where (new.attempts < old.attempts or new.failures < old.failures)
     and not (old.state in ('PUBLISHED', 'DEAD') and new.state = 'PENDING');
  select raise(abort, 'penstock: replays and earlier attempts never decrease')
   where new.replays < old.replays or new.earlier_attempts < old.earlier_attempts;
end;

-- Who holds a delivery, and when it ended, changes with its state only; but for what follows from the state by a trigger
-- of its own. (AFTER: the trigger that names a pair that is no transition comes first.)
create trigger if not exists penstock_deliveries_unmoved after update on penstock_deliveries
when old.state = new.state
 and (old.claimed_at is not new.claimed_at or old.claimed_by is not new.claimed_by
      or old.published_at is not new.published_at
      or (old.lease is not new.lease and (new.state = 'CLAIMED' or new.lease is not null))
      or (old.dead_at is not new.dead_at and new.state = 'DEAD' and old.dead_at is not null))
begin
  select raise(abort, 'penstock: who holds a delivery and when it ended change with its state only');
end;
