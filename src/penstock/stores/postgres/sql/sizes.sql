-- name: sizes.tables
-- The tables of the log with their indexes, the largest first; rows as the planner estimates them.
select c.relname as name, pg_total_relation_size(c.oid) as bytes,
       case when c.reltuples < 0 then null else c.reltuples::bigint end as rows
  from pg_class c where c.relnamespace = split_part('penstock.', '.', 1)::regnamespace and c.relkind = 'r'
 order by bytes desc, name limit 50;
