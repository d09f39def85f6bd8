-- name: archive.every
select * from penstock_archives where :stream is null or stream = :stream order by id;

-- name: archive.unfinished
select * from penstock_archives where stream = :stream and place = :place and state = 'writing';

-- name: archive.last
select * from penstock_archives where stream = :stream and place = :place and state = 'done' order by high desc limit 1;

-- name: archive.begin
-- No answer if another process has just begun it.
insert into penstock_archives (stream, place, low, high, complete_from, state, by, began_at)
values (:stream, :place, :low, :high, :complete_from, 'writing', :by, :now)
on conflict do nothing
returning *;

-- name: archive.locked
select * from penstock_archives where id = :id;

-- name: archive.add_file
insert into penstock_archive_files (archive_id, path, low, high, events, bytes, footer_sha256, first_at, last_at)
values (:archive_id, :path, :low, :high, :events, :bytes, :footer_sha256, :first_at, :last_at);

-- name: archive.finish
update penstock_archives
   set state = 'done', folder = :folder, events = :events, bytes = :bytes, ended_at = :now
 where id = :id;

-- name: archive.files
-- Files with events of a stream in a stretch and a time.
select f.*, a.place from penstock_archives a join penstock_archive_files f on f.archive_id = a.id
 where a.stream = :stream and a.state = 'done' and a.high > :low and a.low < :high
   and f.high > :low and f.low < :high
   and (:place is null or a.place = :place)
   and (:since is null or f.last_at >= :since)
   and (:until is null or f.first_at < :until)
 order by f.low, a.id;

-- name: archive.files_of
select * from penstock_archive_files where archive_id = :archive_id order by low, path;

-- name: archive.all_files
-- Every file that is archived, newest first.
select f.*, a.place, a.stream from penstock_archives a join penstock_archive_files f on f.archive_id = a.id
 where a.state = 'done' order by a.id desc, f.low desc;

-- name: archive.replace_file
-- Another file in the place of one, which is to be deleted.
delete from penstock_archive_files where archive_id = :archive_id and path = :old
;;
insert into penstock_archive_waste (archive_id, path) values (:archive_id, :old) on conflict do nothing
;;
update penstock_archives set version = version + 1, bytes = bytes + :grown where id = :archive_id
;;
insert into penstock_archive_files (archive_id, path, low, high, events, bytes, footer_sha256, first_at, last_at)
values (:archive_id, :path, :low, :high, :events, :bytes, :footer_sha256, :first_at, :last_at);

-- name: archive.waste
select w.archive_id, w.path, a.place from penstock_archive_waste w join penstock_archives a on a.id = w.archive_id
 order by w.archive_id, w.path;

-- name: archive.wasted
delete from penstock_archive_waste where archive_id = :archive_id and path = :path;

-- name: archive.covered
-- Whether anything of a stream is archived.
select 1 as found from penstock_archives where stream = :stream and state = 'done' limit 1;

-- name: archive.file
-- Whether a file is one of an archive's, and was not replaced.
select 1 as found from penstock_archive_files where archive_id = :archive_id and path = :path;

-- name: archive.reach
-- Up to where a stream is archived, anywhere.
select max(high) as upto from penstock_archives where stream = :stream and state = 'done';
