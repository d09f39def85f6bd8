-- name: cancel.ask
insert into penstock_event_cancels (group_id, "offset", reason, by, asked_at)
select :group_id, o.value, :reason, :by, :now from json_each(:offsets) o where true
on conflict (group_id, "offset") do update set reason = excluded.reason, by = excluded.by, asked_at = excluded.asked_at;

-- name: cancel.of_lease
-- What is to end in a lease; a range may have offsets of other lanes between its own.
select c."offset", c.reason, c.by from penstock_leases l join penstock_event_cancels c on c.group_id = l.group_id
 where l.id = :id
   and case when l.offsets is null then c."offset" > l.low and c."offset" <= l.high
                                        and c."offset" not in (select value from json_each(l.holes))
            else c."offset" in (select value from json_each(l.offsets)) end;

-- name: cancel.groups
-- Groups with requests.
select g.stream, g.group_name from penstock_groups g
 where g.group_id in (select c.group_id from penstock_event_cancels c);

-- name: cancel.asked
-- The requests of a group; without an id the event is gone.
select c."offset", c.reason, c.by, e.event_id from penstock_event_cancels c
  left join penstock_events e on e."offset" = c."offset"
 where c.group_id = :group_id order by c."offset";

-- name: cancel.answered
delete from penstock_event_cancels where group_id = :group_id and "offset" in (select value from json_each(:offsets));

-- name: cancel.forget
-- Everything above an offset is to be delivered again.
delete from penstock_event_cancels where group_id = :group_id and "offset" > :after;
