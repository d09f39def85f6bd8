-- name: home.look
-- Whether this log was copied from another server, and whether a subscription still fills it.
select pg_is_in_recovery() as standby,
       not exists (select 1 from penstock.home) or exists (
         select 1 from penstock.home h where h.system_identifier <> s.system_identifier) as copied,
       exists (select 1 from pg_subscription_rel r join pg_subscription u on u.oid = r.srsubid
                where r.srrelid = 'penstock.events'::regclass and u.subenabled) as subscribed
  from pg_control_system() s;

-- name: home.leave
delete from penstock.home;

-- name: home.settle
insert into penstock.home (system_identifier) select system_identifier from pg_control_system();
