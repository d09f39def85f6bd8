-- name: archive.every
select * from penstock.archives where %(stream)s::text is null or stream = %(stream)s order by id;

-- name: archive.unfinished
select * from penstock.archives where stream = %(stream)s and place = %(place)s and state = 'writing';

-- name: archive.last
select * from penstock.archives where stream = %(stream)s and place = %(place)s and state = 'done' order by high desc limit 1;

-- name: archive.begin
-- No answer if another process has just begun it.
insert into penstock.archives (stream, place, low, high, complete_from, state, by, began_at)
values (%(stream)s, %(place)s, %(low)s, %(high)s, %(complete_from)s, 'writing', %(by)s, %(now)s)
on conflict do nothing
returning *;

-- name: archive.locked
select * from penstock.archives where id = %(id)s for update;

-- name: archive.add_file
insert into penstock.archive_files (archive_id, path, low, high, events, bytes, footer_sha256, first_at, last_at)
values (%(archive_id)s, %(path)s, %(low)s, %(high)s, %(events)s, %(bytes)s, %(footer_sha256)s, %(first_at)s, %(last_at)s);

-- name: archive.finish
update penstock.archives
   set state = 'done', folder = %(folder)s, events = %(events)s, bytes = %(bytes)s, ended_at = %(now)s
 where id = %(id)s;

-- name: archive.files
-- Files with events of a stream in a stretch and a time.
select f.*, a.place from penstock.archives a join penstock.archive_files f on f.archive_id = a.id
 where a.stream = %(stream)s and a.state = 'done' and a.high > %(low)s and a.low < %(high)s
   and f.high > %(low)s and f.low < %(high)s
   and (%(place)s::text is null or a.place = %(place)s)
   and (%(since)s::timestamptz is null or f.last_at >= %(since)s::timestamptz)
   and (%(until)s::timestamptz is null or f.first_at < %(until)s::timestamptz)
 order by f.low, a.id;

-- name: archive.files_of
select * from penstock.archive_files where archive_id = %(archive_id)s order by low, path;

-- name: archive.all_files
-- Every file that is archived, newest first.
select f.*, a.place, a.stream from penstock.archives a join penstock.archive_files f on f.archive_id = a.id
 where a.state = 'done' order by a.id desc, f.low desc;

-- name: archive.replace_file
-- Another file in the place of one, which is to be deleted.
with old as (
  delete from penstock.archive_files where archive_id = %(archive_id)s and path = %(old)s
), waste as (
  insert into penstock.archive_waste (archive_id, path) values (%(archive_id)s, %(old)s) on conflict do nothing
), grown as (
  update penstock.archives set version = version + 1, bytes = bytes + %(grown)s where id = %(archive_id)s
)
insert into penstock.archive_files (archive_id, path, low, high, events, bytes, footer_sha256, first_at, last_at)
values (%(archive_id)s, %(path)s, %(low)s, %(high)s, %(events)s, %(bytes)s, %(footer_sha256)s, %(first_at)s, %(last_at)s);

-- name: archive.waste
select w.archive_id, w.path, a.place from penstock.archive_waste w join penstock.archives a on a.id = w.archive_id
 order by w.archive_id, w.path;

-- name: archive.wasted
delete from penstock.archive_waste where archive_id = %(archive_id)s and path = %(path)s;

-- name: archive.covered
-- Whether anything of a stream is archived.
select 1 as found from penstock.archives where stream = %(stream)s and state = 'done' limit 1;

-- name: archive.file
-- Whether a file is one of an archive's, and was not replaced.
select 1 as found from penstock.archive_files where archive_id = %(archive_id)s and path = %(path)s;

-- name: archive.reach
-- Up to where a stream is archived, anywhere.
select max(high) as upto from penstock.archives where stream = %(stream)s and state = 'done';
