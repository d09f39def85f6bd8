-- name: claim.lanes
-- The cursor of every lane: the greatest high of its fresh leases.
with recursive lane(lane) as (
  select 0 union all select lane + 1 from lane where lane + 1 < :lanes
), found as (
  select lane, (select f.id from penstock_leases f where f.group_id = :group_id and f.lanes = :lanes and f.lane = l.lane
                   and f.fresh = 1 order by f.high desc limit 1) as cursor_lease
    from lane l
)
select l.lane, c.high as cursor, c.total from found l left join penstock_leases c on c.id = l.cursor_lease
 order by l.lane;

-- name: returned.all
select * from penstock_returned where group_id = :group_id;

-- name: returned.split
-- The part of a returned range that falls to one half of its lane.
insert into penstock_returned ({{returned_columns}})
select r.group_id, :lane, :lanes, r.binding, r.low, r.high,
       (select count(*) from penstock_groups g
         cross join penstock_bindings b on b.id = r.binding
         cross join penstock_events e indexed by penstock_events_stream on e.stream = g.stream
         where g.group_id = r.group_id and e."offset" > r.low and e."offset" <= r.high
           and {{of_buckets(e.)}}
           and {{bound(b.id, e.)}}
           and not {{has_row(r.group_id, e.)}}),
       r.attempts, r.replay, r.available_at, r.reason, r.last_error, r.error_code, r.error_type, r.fingerprint, r.returned_at
  from penstock_returned r where r.id = :id;

-- name: group.lanes
update penstock_groups set lanes = :lanes, starts = :starts, matched_before = :matched_before
 where group_id = :group_id;
