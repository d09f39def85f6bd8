-- name: claim.lanes
-- The cursor of every lane: the greatest high of its fresh leases.
select l.lane, c.high as cursor, c.total
  from generate_series(0, %(lanes)s - 1) as l(lane)
  left join lateral (select high, total from penstock.leases
                      where group_id = %(group_id)s and lanes = %(lanes)s and lane = l.lane and fresh
                      order by high desc limit 1) c on true
 order by l.lane;

-- name: returned.all
select * from penstock.returned where group_id = %(group_id)s;

-- name: returned.split
-- The part of a returned range that falls to one half of its lane.
insert into penstock.returned ({{returned_columns}})
select r.group_id, %(lane)s, %(lanes)s, r.binding, r.low, r.high,
       (select count(*)::int from penstock.events e
          join penstock.groups g on g.group_id = r.group_id and g.stream = e.stream
          join penstock.bindings b on b.id = r.binding
         where e."offset" > r.low and e."offset" <= r.high
           and {{of_buckets(e.)}}
           and {{bound(e.)}}
           and not {{has_row(r.group_id, e.)}}),
       r.attempts, r.replay, r.available_at, r.reason, r.last_error, r.error_code, r.error_type, r.fingerprint, r.returned_at
  from penstock.returned r where r.id = %(id)s;

-- name: group.lanes
update penstock.groups
   set lanes = %(lanes)s, starts = %(starts)s::bigint[], matched_before = %(matched_before)s
 where group_id = %(group_id)s;
