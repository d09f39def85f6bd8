-- name: clock.overridden
select 1 from penstock.test_clock limit 1;

-- name: clock.override
insert into penstock.test_clock default values;
