-- The HTTP service: who may use it, and which claims were asked for with a key.

-- Of a secret only its hash is stored. A token that was revoked keeps its row: the audit names it.
create table if not exists penstock.tokens (
  name       text primary key,
  hash       bytea not null unique check (octet_length(hash) = 32),
  scopes     text not null,
  created_at timestamptz not null,
  created_by text not null,
  revoked_at timestamptz
);

-- The leases that a claim with an idempotency key got: asked again, it gets the same ones.
create table if not exists penstock.claim_keys (
  principal  text not null,
  key        text not null,
  request    text not null,
  leases     text not null,
  claimed_at timestamptz not null,
  primary key (principal, key)
);
create index if not exists claim_keys_age on penstock.claim_keys (claimed_at);

alter function penstock.rights() rename to rights_until_0020;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0020() r
  union all
  values ('worker', 'insert, update, delete', 'penstock.claim_keys')
$$;
select penstock.regrant();
