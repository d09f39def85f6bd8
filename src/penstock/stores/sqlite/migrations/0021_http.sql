-- The HTTP service: who may use it, and which claims were asked for with a key.

-- Of a secret only its hash is stored. A token that was revoked keeps its row: the audit names it.
create table if not exists penstock_tokens (
  name       text primary key,
  hash       blob not null unique check (length(hash) = 32),
  scopes     text not null,
  created_at integer not null,
  created_by text not null,
  revoked_at integer
) without rowid;

-- The leases that a claim with an idempotency key got: asked again, it gets the same ones.
create table if not exists penstock_claim_keys (
  principal  text not null,
  key        text not null,
  request    text not null,
  leases     text not null,
  claimed_at integer not null,
  primary key (principal, key)
) without rowid;
create index if not exists penstock_claim_keys_age on penstock_claim_keys (claimed_at);
