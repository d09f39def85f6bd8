-- name: erase.find
select stream, "offset", content_type, metadata from penstock_events where event_id = :event_id;

-- name: erase.event
insert into penstock_maintenance (one) values (1)
;;
update penstock_events
   set payload = :payload, metadata = json_set(coalesce(metadata, '{}'), '$."penstock-erased"', :mark)
 where event_id = :event_id
;;
delete from penstock_maintenance
;;
update penstock_fingerprints set message = :said, traceback = null
 where fingerprint in (
   select a.fingerprint from penstock_events e
    cross join penstock_groups g on g.stream = e.stream
    cross join penstock_attempt_log a on a.group_id = g.group_id and a."offset" = e."offset"
    where e.event_id = :event_id
   union all
   select d.fingerprint from penstock_events e
    cross join penstock_groups g on g.stream = e.stream
    cross join penstock_deliveries d on d.group_id = g.group_id and d."offset" = e."offset"
    where e.event_id = :event_id)
;;
update penstock_attempt_log set error = :said
 where error is not null
   and (group_id, "offset") in (select g.group_id, e."offset" from penstock_events e
                                 cross join penstock_groups g on g.stream = e.stream where e.event_id = :event_id)
;;
update penstock_deliveries set last_error = :said
 where last_error is not null
   and (group_id, "offset") in (select g.group_id, e."offset" from penstock_events e
                                 cross join penstock_groups g on g.stream = e.stream where e.event_id = :event_id)
;;
update penstock_job_notes set message = null, result = null
 where "offset" = (select "offset" from penstock_events where event_id = :event_id);

-- name: erase.unfinished
-- Archives that are being written, and may hold an event.
select id, place from penstock_archives
 where stream = :stream and state = 'writing' and low < :offset and high >= :offset limit 1;
