-- name: repair.sequence
select setval(%(name)s::regclass, %(value)s);
