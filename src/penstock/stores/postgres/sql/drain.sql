-- name: drain.left
-- In work, come back, a file that waits for its name, a row that can still become due by itself, or an event behind a
-- cursor. A row that is dated in the future does not count, nor one behind such a row or behind a dead letter that halts its key.
select exists (select 1 from penstock.open_lease where group_id = %(group_id)s)
    or exists (select 1 from penstock.returned where group_id = %(group_id)s)
    or exists (select 1 from penstock.renames r join penstock.leases l on l.id = r.lease where l.group_id = %(group_id)s)
    or exists (select 1 from penstock.deliveries d
                where d.group_id = %(group_id)s and d.state = 'PENDING' and not (d.attempts = 0 and d.available_at > %(now)s)
                  and not (%(ordered)s and exists (
                        select 1 from penstock.deliveries h
                         where h.group_id = d.group_id and h.bucket = d.bucket and h.ordering_key = d.ordering_key
                           and h."offset" < d."offset" and {{unresolved(h.)}}
                           and h.state = 'PENDING' and h.attempts = 0 and h.available_at > %(now)s))
                  and not (%(ordered)s and %(halts)s and exists (
                        select 1 from penstock.deliveries h
                         where h.group_id = d.group_id and h.bucket = d.bucket and h.ordering_key = d.ordering_key
                           and h."offset" < d."offset" and {{halting(h.)}})))
    or exists (select 1 from penstock.delivery v
                where v.group_id = %(group_id)s and v.state = 'PENDING' and v.attempts = 0 and v.reason is null
                  and v.available_at <= %(now)s and v."offset" <= %(horizon)s
                  and v."offset" > (select min(cursor) from penstock.lane where group_id = %(group_id)s)) as "left";

-- name: drain.due
select {{due(%(group_id)s)}} as due;

-- name: drain.due_groups
-- Those of some groups in which a claim would find something now.
select i.group_id from unnest(%(ids)s::int[]) as i(group_id)
 where {{due(i.group_id)}};
