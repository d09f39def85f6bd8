-- name: series.group
-- What a group did, by buckets.
select (at - :since) / (:step * 1000000) as bucket, sum(published) as published, sum(failed) as failed, sum(dead) as dead,
       sum(released) as released, max(lag) as lag, max(oldest_seconds) as oldest_seconds, max(pending) as pending,
       max(claimed) as claimed, max(retrying) as retrying, max(dead_letters) as dead_letters
  from penstock_metric indexed by penstock_metric_of_group
 where group_id = :group_id and at >= :since and at < :until
 group by bucket;

-- name: series.stream
-- What was appended to a stream, by buckets.
select (at - :since) / (:step * 1000000) as bucket, sum(appended) as appended
  from penstock_metric indexed by penstock_metric_of_stream
 where stream = :stream and at >= :since and at < :until
 group by bucket;

-- name: series.rounds
-- The buckets in which somebody sampled, and whether in their first minute; the one that follows included.
select (at - :since) / (:step * 1000000) as bucket, max(at_start and (at - :since) % (:step * 1000000) = 0) as at_start
  from penstock_metric_round where at >= :since and at <= :until
 group by bucket;

-- name: series.published
-- What all groups finished, by buckets.
select group_id, bucket, sum(published) as published from (
  select group_id, (at - :since) / (:step * 1000000) as bucket, published
    from penstock_metric indexed by penstock_metric_by_age
   where seconds in (60, 600, 3600) and at >= :since and at < :until and group_id is not null
  union all
  select group_id, (at - :since) / (:step * 1000000), published
    from penstock_metric_mark where at >= :since and at < :until)
 group by group_id, bucket;

-- name: series.behind
-- Groups of which not all leases are counted.
select group_id from penstock_metric_mark where behind;
