-- name: token.add
-- No row if the name is taken.
insert into penstock.tokens (name, hash, scopes, created_at, created_by)
values (%(name)s, %(hash)s, %(scopes)s, %(now)s, %(by)s) on conflict (name) do nothing returning name;

-- name: token.find
-- The token with this hash, unless it was revoked.
select name, scopes from penstock.tokens where hash = %(hash)s and revoked_at is null;

-- name: token.all
select name, scopes, created_at, created_by, revoked_at from penstock.tokens order by created_at, name;

-- name: token.revoke
-- The first time counts.
update penstock.tokens set revoked_at = coalesce(revoked_at, %(now)s) where name = %(name)s
returning name, scopes, created_at, created_by, revoked_at;

-- name: claim_key.take
-- No row if the key was used; waits for a claim with the same key that is under way.
insert into penstock.claim_keys (principal, key, request, leases, claimed_at)
values (%(principal)s, %(key)s, %(request)s, '[]', %(now)s) on conflict do nothing returning key;

-- name: claim_key.find
select request, leases from penstock.claim_keys where principal = %(principal)s and key = %(key)s;

-- name: claim_key.note
update penstock.claim_keys set leases = %(leases)s where principal = %(principal)s and key = %(key)s;

-- name: claim_key.forget
delete from penstock.claim_keys where principal = %(principal)s and key = %(key)s;

-- name: claim_key.prune
-- Some of the keys that nobody repeats any more, but none that another transaction removes just now.
delete from penstock.claim_keys
 where (principal, key) in (select principal, key from penstock.claim_keys where claimed_at < %(before)s
                             order by claimed_at limit 100 for update skip locked);
