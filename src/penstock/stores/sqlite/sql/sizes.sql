-- name: sizes.tables
-- The file, and the part of it that is free.
select 'database' as name, (select page_count from pragma_page_count) * (select page_size from pragma_page_size) as bytes,
       null as rows
union all
select 'free pages', (select freelist_count from pragma_freelist_count) * (select page_size from pragma_page_size), null;
