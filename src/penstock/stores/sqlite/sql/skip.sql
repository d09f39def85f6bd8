-- name: skip.key
update penstock_deliveries set reason = 'skipped', updated_at = :now
 where group_id = :group_id and ordering_key = :key and {{halting()}};
