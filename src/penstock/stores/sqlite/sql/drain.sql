-- name: drain.left
-- In work, come back, a file that waits for its name, a row that can still become due by itself, or an event behind a
-- cursor. A row that is dated in the future does not count, nor one behind such a row or behind a dead letter that halts its key.
select exists (select 1 from penstock_leases where group_id = :group_id and outcome is null)
    or exists (select 1 from penstock_returned where group_id = :group_id)
    or exists (select 1 from penstock_renames r join penstock_leases l on l.id = r.lease where l.group_id = :group_id)
    or exists (select 1 from penstock_deliveries d
                where d.group_id = :group_id and d.state = 'PENDING' and not (d.attempts = 0 and d.available_at > :now)
                  and not (:ordered and exists (
                        select 1 from penstock_deliveries h
                         where h.group_id = d.group_id and h.bucket = d.bucket and h.ordering_key = d.ordering_key
                           and h."offset" < d."offset"
                           and ((:halts and {{halting(h.)}})
                             or (h.state = 'PENDING' and h.attempts = 0 and h.available_at > :now)))))
    or exists (select 1 from penstock_delivery v
                where v.group_id = :group_id and v.state = 'PENDING' and v.attempts = 0 and v.reason is null
                  and v.available_at <= :now and v."offset" <= :horizon
                  and v."offset" > (select min(cursor) from penstock_lane where group_id = :group_id)) as "left";

-- name: drain.due
select {{due(:group_id)}} as due;

-- name: drain.due_groups
-- Those of some groups in which a claim would find something now.
select i.group_id from (select value as group_id from json_each(:ids)) i
 where {{due(i.group_id)}};
