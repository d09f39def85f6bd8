-- name: horizon.last
-- First the sequence …
select case when is_called then last_value else 0 end as last from penstock.events_offset_seq;

-- name: horizon.announced
-- … then, in a later statement, the bounds that appenders announced.
select bound from penstock.announced() as a(bound);

-- name: horizon.replayed
-- What the primary has noted and this standby has replayed. Whatever had committed below it was replayed before it.
select upto from penstock.standby_horizon;

-- name: horizon.note
-- For standbys. Whoever finds it locked leaves it to the other.
update penstock.standby_horizon set upto = %(upto)s, at = clock_timestamp()
 where ctid in (select ctid from penstock.standby_horizon where upto < %(upto)s for update skip locked);
