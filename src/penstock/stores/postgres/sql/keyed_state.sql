-- name: state.read
select key, name, value, version, expires_at from penstock.state
 where group_id = %(group_id)s and key = any(%(keys)s::text[]);

-- name: state.write_compared
insert into penstock.state as s (group_id, key, name, value, version, expires_at, updated_at)
select %(group_id)s, r.key, r.name, r.value, r.expected + 1, r.expires_at, %(now)s
  from jsonb_to_recordset(%(rows)s::jsonb) as r(key text, name text, value text, expected bigint, expires_at timestamptz)
on conflict (group_id, key, name) do update
   set value = excluded.value, version = s.version + 1, expires_at = excluded.expires_at, updated_at = excluded.updated_at
 where s.version = excluded.version - 1;

-- name: state.write_blind
insert into penstock.state as s (group_id, key, name, value, version, expires_at, updated_at)
select %(group_id)s, r.key, r.name, r.value, 1, r.expires_at, %(now)s
  from jsonb_to_recordset(%(rows)s::jsonb) as r(key text, name text, value text, expires_at timestamptz)
on conflict (group_id, key, name) do update
   set value = excluded.value, version = s.version + 1, expires_at = excluded.expires_at, updated_at = excluded.updated_at;
