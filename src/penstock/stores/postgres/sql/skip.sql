-- name: skip.key
update penstock.deliveries set reason = 'skipped', updated_at = %(now)s
 where group_id = %(group_id)s and ordering_key = %(key)s and {{halting()}};
