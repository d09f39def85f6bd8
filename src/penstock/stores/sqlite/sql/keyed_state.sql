-- name: state.read
select "key", name, value, version, expires_at from penstock_state
 where group_id = :group_id and "key" in (select value from json_each(:keys));

-- name: state.write_compared
insert into penstock_state as s (group_id, "key", name, value, version, expires_at, updated_at)
select :group_id, json_extract(value, '$.key'), json_extract(value, '$.name'), json_extract(value, '$.value'),
       json_extract(value, '$.expected') + 1, json_extract(value, '$.expires_at'), :now
  from json_each(:rows) where true
on conflict (group_id, "key", name) do update
   set value = excluded.value, version = s.version + 1, expires_at = excluded.expires_at, updated_at = excluded.updated_at
 where s.version = excluded.version - 1;

-- name: state.write_blind
insert into penstock_state as s (group_id, "key", name, value, version, expires_at, updated_at)
select :group_id, json_extract(value, '$.key'), json_extract(value, '$.name'), json_extract(value, '$.value'),
       1, json_extract(value, '$.expires_at'), :now
  from json_each(:rows) where true
on conflict (group_id, "key", name) do update
   set value = excluded.value, version = s.version + 1, expires_at = excluded.expires_at, updated_at = excluded.updated_at;
