-- name: token.add
-- No row if the name is taken.
insert into penstock_tokens (name, hash, scopes, created_at, created_by)
values (:name, :hash, :scopes, :now, :by) on conflict (name) do nothing returning name;

-- name: token.find
-- The token with this hash, unless it was revoked.
select name, scopes from penstock_tokens where hash = :hash and revoked_at is null;

-- name: token.all
select name, scopes, created_at, created_by, revoked_at from penstock_tokens order by created_at, name;

-- name: token.revoke
-- The first time counts.
update penstock_tokens set revoked_at = coalesce(revoked_at, :now) where name = :name
returning name, scopes, created_at, created_by, revoked_at;

-- name: claim_key.take
-- No row if the key was used.
insert into penstock_claim_keys (principal, key, request, leases, claimed_at)
values (:principal, :key, :request, '[]', :now) on conflict do nothing returning key;

-- name: claim_key.find
select request, leases from penstock_claim_keys where principal = :principal and key = :key;

-- name: claim_key.note
update penstock_claim_keys set leases = :leases where principal = :principal and key = :key;

-- name: claim_key.forget
delete from penstock_claim_keys where principal = :principal and key = :key;

-- name: claim_key.prune
-- Some of the keys that nobody repeats any more.
delete from penstock_claim_keys
 where (principal, key) in (select principal, key from penstock_claim_keys where claimed_at < :before
                             order by claimed_at limit 100);
