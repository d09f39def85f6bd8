-- name: fingerprints.kinds
-- The kinds of a group's dead letters, from one to the next in the index, with the last death of each; those seen last first.
with recursive kinds as (
  select (select d.fingerprint from penstock_deliveries d
           where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and d.fingerprint is not null
           order by d.fingerprint limit 1) as fingerprint
  union all
  select (select d.fingerprint from penstock_deliveries d
           where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and d.fingerprint > k.fingerprint
           order by d.fingerprint limit 1)
    from kinds k where k.fingerprint is not null
), named as materialized (
  select fingerprint from kinds where fingerprint is not null limit :most
)
select n.fingerprint, (
         select d.dead_at from penstock_deliveries d
          where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and d.fingerprint = n.fingerprint
          order by d.dead_at desc limit 1) as last_at
  from named n
union all
select * from (
  select null, d.dead_at from penstock_deliveries d
   where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and d.fingerprint is null
   order by d.dead_at desc limit 1) without_one
 order by last_at desc;

-- name: fingerprints.counts
-- The newest of a kind, by the hour in which they died: 24 is the last one, 0 any time before.
select max(0, 24 - (:now - n.dead_at) / 3600000000) as hour, count(*) as deliveries
  from (select d.dead_at from penstock_deliveries d
         where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and {{of_this_kind(d.)}}
         order by d.dead_at desc limit :most) n
 group by 1;

-- name: fingerprints.matching
-- Those of them that match a filter.
select max(0, 24 - (:now - n.dead_at) / 3600000000) as hour, count(*) as deliveries
  from (select d.* from penstock_deliveries d
         where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and {{of_this_kind(d.)}}
         order by d.dead_at desc limit :most) n
 where {{dead_letters(n.)}}
 group by 1;

-- name: fingerprints.samples
-- The newest of a kind that match a filter, of the newest that are looked at; each with the first death of its kind.
select n.event_id, n.error_code, n.error_type, n.last_error, n.dead_at, (
         select d.dead_at from penstock_deliveries d
          where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and {{of_this_kind(d.)}}
          order by d.dead_at limit 1) as first_at
  from (select d.* from penstock_deliveries d
         where d.group_id = :group_id and d.state = 'DEAD' and {{shown(d.)}} and {{of_this_kind(d.)}}
         order by d.dead_at desc limit :most) n
 where {{dead_letters(n.)}}
 order by n.dead_at desc limit :samples;

-- name: fingerprints.described
select f.fingerprint, f.error_code, f.error_type, f.message, f.traceback from penstock_fingerprints f
 where f.fingerprint in (select value from json_each(:kinds));

-- name: fingerprints.notes
select fingerprint, note, owner, muted from penstock_fingerprint_notes where group_id = :group_id;

-- name: fingerprints.note
-- What is not given stays.
insert into penstock_fingerprint_notes as f (group_id, fingerprint, note, owner, muted, "by", updated_at)
values (:group_id, :fingerprint, :note, :owner, coalesce(:muted, 0), :by, :now)
on conflict (group_id, fingerprint) do update
   set note = coalesce(:note, f.note), owner = coalesce(:owner, f.owner), muted = coalesce(:muted, f.muted),
       "by" = excluded."by", updated_at = excluded.updated_at
returning note, owner, muted;
