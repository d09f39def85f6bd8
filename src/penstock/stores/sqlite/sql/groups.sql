-- name: group.lock
-- BEGIN IMMEDIATE made this the only transaction that writes.
select group_id from penstock_groups where stream = :stream and group_name = :group_name;

-- name: group.find
-- The groups of a stream (or of the log), or one of them, or that of a lease; each with its bindings in order.
select {{group_columns}}
 where {{of_group(g.)}}
   and (:lease is null or g.group_id = (select group_id from penstock_leases where id = :lease))
 order by g.stream, g.group_name;
