-- name: clock.overridden
select 1 from penstock_test_clock limit 1;

-- name: clock.override
insert into penstock_test_clock default values;
