-- name: erase.find
select stream, "offset", content_type, metadata::text as metadata from penstock.events where event_id = %(event_id)s;

-- name: erase.event
select penstock.erase_event(%(event_id)s, %(payload)s, %(mark)s, %(said)s);

-- name: erase.unfinished
-- Archives that are being written, and may hold an event.
select id, place from penstock.archives
 where stream = %(stream)s and state = 'writing' and low < %(offset)s and high >= %(offset)s limit 1;
